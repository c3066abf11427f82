#include "daemon/main/options.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Options> Parse(std::vector<std::string> arguments) {
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  return ParseOptions(raw);
}

TEST(Options, ValuesAndFlagsAreRead) {
  const auto options = Parse({"--socket", "/a.sock", "--socket-mode", "0660", "--exit-when-idle", "5",
                              "--host-memory-limit", "0", "--background"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->socket, "/a.sock");
  EXPECT_EQ(options->socket_mode, 0660u);
  EXPECT_EQ(options->exit_when_idle_seconds, 5);
  EXPECT_EQ(options->host_memory_limit_mb, 0);
  EXPECT_TRUE(options->background);
}

TEST(Options, MistakesAreNamed) {
  EXPECT_THAT(Parse({"--sockt", "x"}).status().message(), HasSubstr("--sockt"));
  EXPECT_THAT(Parse({"--socket"}).status().message(), HasSubstr("needs a value"));
  EXPECT_THAT(Parse({"--socket-mode", "0999"}).status().message(), HasSubstr("0999"));
  EXPECT_THAT(Parse({"--socket-mode", "40000000660"}).status().message(), HasSubstr("outside"))
      << "of which 32 bits are 0660";
  EXPECT_THAT(Parse({"--without-checks"}).status().message(), HasSubstr("unknown argument"))
      << "but in the build that the presets `without-checks` make";
  EXPECT_THAT(Parse({"--exit-when-idle", "soon"}).status().message(), HasSubstr("'soon'"));
}

}  // namespace
}  // namespace xpud
