// Readers of metrics, and clients' names in them. The first byte selects: bytes of an HTTP connection, in two
// parts, or a client's name.
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "daemon/telemetry/connection.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "tests/fuzz/bytes.h"

namespace xpud::fuzz {
namespace {

constexpr std::string_view kMetrics = "metrics\n", kEnd = "\r\n\r\n", kVersion = "HTTP/1.1 ";

std::string Hear(const UniqueFd& socket) {
  std::string heard;
  std::array<char, 4096> bytes;
  for (ssize_t count = 0; (count = recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0;)
    heard.append(bytes.data(), static_cast<size_t>(count));
  return heard;
}

bool Begins(std::string_view request, std::string_view method) {
  if (!request.starts_with(method)) return false;
  request.remove_prefix(method.size());
  return request.starts_with(" /metrics ") || request.starts_with(" /metrics?");
}

// The answer must be complete, and contain metrics only for a valid request.
void CheckAnswer(std::string_view request, std::string_view answer) {
  const size_t end = answer.find(kEnd);
  XPUD_CHECK(answer.starts_with(kVersion) && end != std::string_view::npos);
  const std::string_view status = answer.substr(kVersion.size(), 3), body = answer.substr(end + kEnd.size());
  if (status == "200") {
    XPUD_CHECK(Begins(request, "GET") ? body == kMetrics : Begins(request, "HEAD") && body.empty());
  } else {
    XPUD_CHECK(status == "400" || status == "404" || status == "405" || status == "431");
    XPUD_CHECK(body.ends_with('\n') && body != kMetrics);
  }
}

void Ask(size_t first, std::string_view request) {
  int ends[2];
  XPUD_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const UniqueFd peer(ends[0]);
  telemetry::Connection connection(UniqueFd(ends[1]), telemetry::Connection::Clock::time_point::max());
  telemetry::Connection::Body body = std::make_shared<const std::string>(kMetrics);
  first = std::min(first, request.size());
  for (const std::string_view part : {request.substr(0, first), request.substr(first)}) {
    if (send(peer.get(), part.data(), part.size(), 0) != static_cast<ssize_t>(part.size())) return;
    XPUD_CHECK(connection.Advance([&](telemetry::Format) { return body; }));
  }
  const std::string answer = Hear(peer);
  if (answer.empty()) {
    XPUD_CHECK(request.find(kEnd) == std::string_view::npos && request.size() <= telemetry::kMaxRequestBytes);
  } else {
    CheckAnswer(request, answer);
  }
}

// The name must be printable, and stay one label in one line.
void Name(std::string_view name) {
  const std::string labels = telemetry::LabelsText({{"client", std::string(name)}});
  std::string_view text = labels;
  constexpr std::string_view kBefore = "{client=\"", kAfter = "\"}";
  XPUD_CHECK(text.starts_with(kBefore) && text.ends_with(kAfter) &&
             text.find('\n') == std::string_view::npos);
  text = text.substr(kBefore.size(), text.size() - kBefore.size() - kAfter.size());
  std::string read;
  for (size_t i = 0; i < text.size(); ++i) {
    XPUD_CHECK(text[i] != '"');
    if (text[i] == '\\') {
      ++i;
      XPUD_CHECK(i < text.size() && (text[i] == '\\' || text[i] == '"'));
    }
    read += text[i];
  }
  XPUD_CHECK(read == PrintableText(name));
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  Bytes input(data, size);
  if (input.Take<uint8_t>() % 2 == 0) {
    const auto first = input.Take<uint16_t>();
    Ask(first, input.text());
  } else {
    Name(input.text());
  }
  return 0;
}
