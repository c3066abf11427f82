// Quantities of Kubernetes: "4Gi", "30", "1500m", "1e3", "2G". Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace xpud::agent::kubernetes {

// The value of a quantity that is a whole number, exactly. Returns InvalidArgument if the text is no
// quantity, is negative, is not whole ("1500m") or is above 2^63 - 1, which is Kubernetes' limit.
absl::StatusOr<uint64_t> WholeQuantity(std::string_view text);

// As Kubernetes itself writes them, so that what the API server returns is what was sent.
std::string BinaryQuantity(uint64_t value);   // 4 << 30: "4Gi"
std::string DecimalQuantity(uint64_t value);  // 1000: "1k"

}  // namespace xpud::agent::kubernetes
