#include "daemon/telemetry/endpoint.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Endpoint, IsOnLoopbackUnlessAHostIsNamed) {
  for (const char* text : {"0", ":0", "localhost:0", "127.0.0.1:0"}) {
    const auto endpoint = ListenAt(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_THAT(endpoint->address, StartsWith("127.0.0.1:"));
    EXPECT_NE(endpoint->address, "127.0.0.1:0") << "the port that it got";
  }
  const auto everywhere = ListenAt("0.0.0.0:0");
  ASSERT_TRUE(everywhere.ok()) << everywhere.status();
  EXPECT_THAT(everywhere->address, StartsWith("0.0.0.0:"));
}

TEST(Endpoint, ThatIsMalformedIsNamed) {
  for (const char* text : {"", ":", "a", "65536", "-1", "1 ", "example.org:1", "127.0.0.1", "[::1]", "::1",
                           "[127.0.0.1]:1", "1.2.3.4:x", "[::1]x:1"}) {
    const absl::Status status = ListenAt(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(std::string("'") + text + "'"));
  }
}

TEST(Endpoint, ThatIsTakenIsNamed) {
  const auto first = ListenAt("0");
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(ListenAt(first->address).status().message(), HasSubstr(first->address));
}

}  // namespace
}  // namespace xpud::telemetry
