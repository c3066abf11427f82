// The parts of an HTTP request that the daemon uses: the first line, and the accepted formats. The input is
// not trusted. Thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/telemetry/exposition.h"

namespace xpud::telemetry {

inline constexpr size_t kMaxRequestBytes = 8192;  // first line and headers

struct Request {
  std::string method;
  std::string path;  // without the query
  Format format = Format::kPrometheus;
};

// Returns nullopt while the headers are incomplete, InvalidArgument if this is not HTTP/1, and OutOfRange if
// it is longer than kMaxRequestBytes.
absl::StatusOr<std::optional<Request>> ParseRequest(std::string_view bytes);

}  // namespace xpud::telemetry
