#include "daemon/gateway/gateway_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace xpud::remote {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<GatewayOptions> Parse(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return ParseGatewayOptions(arguments);
}

std::string ErrorOf(const std::vector<std::string>& words) {
  return std::string(Parse(words).status().message());
}

TEST(GatewayOptions, ListenOnLoopbackUnlessTold) {
  EXPECT_EQ(Parse({"--token-file", "t"})->listen, "127.0.0.1:7070");
  EXPECT_EQ(Parse({"--token-file", "t", "--listen", "0.0.0.0:1"})->listen, "0.0.0.0:1");
}

TEST(GatewayOptions, WantAWayToKnowClients) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("anybody who reaches the port could use the devices"));
  EXPECT_THAT(ErrorOf({"--tls-cert", "c", "--tls-key", "k"}), HasSubstr("anybody"));
  EXPECT_TRUE(Parse({"--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "a"}).ok());
  EXPECT_TRUE(Parse({"--help"}).ok());
}

TEST(GatewayOptions, APortBeyondThoseThatThereAreIsRefused) {
  EXPECT_THAT(ErrorOf({"--token-file", "t", "--listen", "0.0.0.0:72606"}),
              HasSubstr("port 72606 of 0.0.0.0:72606 is not allowed; use 0 to 65535"));
  EXPECT_THAT(ErrorOf({"--token-file", "t", "--listen", "0.0.0.0:99999999999"}), HasSubstr("is not allowed"));
  EXPECT_THAT(ErrorOf({"--token-file", "t", "--listen", "0.0.0.0"}), HasSubstr("takes HOST:PORT"));
  EXPECT_TRUE(Parse({"--token-file", "t", "--listen", "[::]:65535"}).ok());
}

TEST(GatewayOptions, SayWhatIsWrong) {
  EXPECT_THAT(ErrorOf({"--tls-cert", "c", "--token-file", "t"}), HasSubstr("must be given together"));
  EXPECT_THAT(ErrorOf({"--tls-client-ca", "a"}), HasSubstr("needs --tls-cert"));
  EXPECT_THAT(ErrorOf({"--token-file"}), HasSubstr("needs a value"));
  EXPECT_THAT(ErrorOf({"--token-file", "t", "--sessions", "0"}),
              HasSubstr("--sessions must be a number from 1"));
  EXPECT_THAT(ErrorOf({"--tokens", "t"}), HasSubstr("unknown argument --tokens"));
}

}  // namespace
}  // namespace xpud::remote
