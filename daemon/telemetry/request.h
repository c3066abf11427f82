// What somebody asks over HTTP, as far as it is looked at: the first line, and which format they accept. All
// of it is hostile until it is parsed. Any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "daemon/telemetry/exposition.h"

namespace xpud::telemetry {

inline constexpr size_t kMaxRequestBytes = 8192;  // its first line and headers

struct Request {
  std::string method;
  std::string path;  // without the query
  Format format = Format::kPrometheus;
};

// Nothing while the end of the headers has not come. InvalidArgument: this is no HTTP/1. OutOfRange: it is
// longer than kMaxRequestBytes.
absl::StatusOr<std::optional<Request>> ParseRequest(std::string_view bytes);

}  // namespace xpud::telemetry
