#include "daemon/telemetry/request.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::telemetry {
namespace {

Request Parsed(const std::string& text) {
  const auto request = ParseRequest(text);
  EXPECT_TRUE(request.ok() && request->has_value()) << text;
  return request.ok() && request->has_value() ? **request : Request();
}

TEST(Request, IsItsMethodAndPath) {
  const Request request = Parsed("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/metrics");
  EXPECT_EQ(request.format, Format::kPrometheus);
  EXPECT_EQ(Parsed("GET / HTTP/1.0\r\n\r\nrest").path, "/");
}

TEST(Request, SaysWhichFormatItTakes) {
  EXPECT_EQ(
      Parsed("GET /metrics HTTP/1.1\r\nACCEPT: Application/OpenMetrics-Text;version=1.0.0\r\n\r\n").format,
      Format::kOpenMetrics);
  EXPECT_EQ(Parsed("GET /metrics HTTP/1.1\r\nX-Accept: application/openmetrics-text\r\n\r\n").format,
            Format::kPrometheus);
}

TEST(Request, IsAwaitedUntilItsHeadersEnd) {
  const std::string whole = "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const auto request = ParseRequest(std::string_view(whole).substr(0, bytes));
    EXPECT_TRUE(request.ok() && !request->has_value()) << bytes;
  }
}

TEST(Request, ThatIsNoHttpIsRefused) {
  for (const std::string line : {"", "GET", "GET /metrics", "GET  HTTP/1.1", "GET /metrics HTTP/2",
                                 "GET /a b HTTP/1.1", "GET /\x01 HTTP/1.1", "\x16\x03\x01 / HTTP/1.1"})
    EXPECT_EQ(ParseRequest(line + "\r\n\r\n").status().code(), absl::StatusCode::kInvalidArgument) << line;
}

TEST(Request, HasAMostSizeWhetherItEndsOrNot) {
  const std::string begin = "GET /metrics HTTP/1.1\r\nX: ", end = "\r\n\r\n";
  const std::string fits(kMaxRequestBytes - begin.size() - end.size(), 'x');
  EXPECT_TRUE(ParseRequest(begin + fits + end).ok());
  EXPECT_TRUE(absl::IsOutOfRange(ParseRequest(begin + fits + "x" + end).status()));
  EXPECT_TRUE(absl::IsOutOfRange(ParseRequest(begin + fits + "xxxxx").status()));
}

}  // namespace
}  // namespace xpud::telemetry
