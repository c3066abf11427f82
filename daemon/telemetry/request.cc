#include "daemon/telemetry/request.h"

#include <algorithm>
#include <cctype>

namespace xpud::telemetry {
namespace {

constexpr std::string_view kLineEnd = "\r\n", kEnd = "\r\n\r\n";

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  std::transform(lowered.begin(), lowered.end(), lowered.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lowered;
}

// Returns the text before `delimiter` and removes both from `text`; returns all of it if there is no
// delimiter.
std::string_view Take(std::string_view& text, std::string_view delimiter) {
  const std::string_view taken = text.substr(0, text.find(delimiter));
  text.remove_prefix(std::min(taken.size() + delimiter.size(), text.size()));
  return taken;
}

// Visible ASCII.
bool IsWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

absl::StatusOr<std::optional<Request>> ParseRequest(std::string_view bytes) {
  const size_t end = bytes.find(kEnd);
  if (end == std::string_view::npos) {
    if (bytes.size() <= kMaxRequestBytes) return std::nullopt;
    return absl::OutOfRangeError("the request is longer than 8192 bytes");
  }
  if (end + kEnd.size() > kMaxRequestBytes)
    return absl::OutOfRangeError("the request is longer than 8192 bytes");
  std::string_view headers = bytes.substr(0, end);
  std::string_view line = Take(headers, kLineEnd);
  const std::string_view method = Take(line, " ");
  std::string_view target = Take(line, " ");
  if (!IsWord(method) || !IsWord(target) || (line != "HTTP/1.1" && line != "HTTP/1.0"))
    return absl::InvalidArgumentError("not an HTTP/1.1 request");
  Request request;
  request.method = method;
  request.path = Take(target, "?");
  while (!headers.empty()) {
    std::string_view value = Take(headers, kLineEnd);
    if (Lowered(Take(value, ":")) == "accept" &&
        Lowered(value).find("application/openmetrics-text") != std::string::npos)
      request.format = Format::kOpenMetrics;
  }
  return request;
}

}  // namespace xpud::telemetry
