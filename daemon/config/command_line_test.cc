#include <vector>

#include "daemon/config/configuration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::config {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  return CommandLine::Parse(raw);
}

TEST(CommandLine, ValuesAndSwitchesAreRead) {
  const auto line =
      Parse({"--socket", "/a.sock", "--socket-mode", "0660", "--exit-when-idle", "5", "--host-memory-limit",
             "0", "--memory-quota", "512", "--cache-limit", "2GiB", "--executor", "process", "--background"});
  ASSERT_TRUE(line.ok()) << line.status();
  const Options& options = line->options();
  EXPECT_EQ(options.socket, "/a.sock");
  EXPECT_EQ(options.socket_mode, 0660u);
  EXPECT_EQ(options.exit_when_idle_seconds, 5);
  EXPECT_EQ(options.host_memory_limit, 0);
  EXPECT_EQ(options.memory_quota, uint64_t{512} << 20) << "a number without a unit is in MiB";
  EXPECT_EQ(options.cache_limit, uint64_t{2} << 30);
  EXPECT_EQ(options.executor, executor::ExecutorKind::kProcess);
  EXPECT_TRUE(options.background);
}

TEST(CommandLine, MistakesAreNamed) {
  EXPECT_THAT(Parse({"--sockt", "x"}).status().message(), HasSubstr("--sockt (did you mean --socket?)"));
  EXPECT_THAT(Parse({"--zzzzzzzzz", "x"}).status().message(), HasSubstr("--zzzzzzzzz; see"));
  EXPECT_THAT(Parse({"socket", "x"}).status().message(), HasSubstr("unknown argument socket"));
  EXPECT_THAT(Parse({"--socket"}).status().message(), HasSubstr("needs a value"));
  EXPECT_THAT(Parse({"--socket-mode", "0999"}).status().message(), HasSubstr("0999"));
  EXPECT_THAT(Parse({"--socket-mode", "40000000660"}).status().message(), HasSubstr("from 0001 to 0777"))
      << "of which 32 bits are 0660";
  EXPECT_THAT(Parse({"--exit-when-idle", "soon"}).status().message(), HasSubstr("'soon'"));
  EXPECT_THAT(Parse({"--log-level", "loud"}).status().message(),
              HasSubstr("trace, debug, info, warn, error"));
}

TEST(CommandLine, PercentagesHaveTwoDecimalsAtMost) {
  EXPECT_EQ(Parse({})->options().least_share, 200u);
  EXPECT_EQ(Parse({"--least-share", "0%"})->options().least_share, 0u);
  EXPECT_EQ(Parse({"--least-share", "2.25%"})->options().least_share, 225u);
  EXPECT_EQ(Parse({"--least-share", "30"})->options().least_share, 3'000u);
  for (const char* wrong : {"", "%", "-1", "30.01%", "1.001", "nan", "inf", "2%%", "two", "1e300"}) {
    EXPECT_THAT(Parse({"--least-share", wrong}).status().message(), HasSubstr("from 0% to 30%")) << wrong;
  }
}

TEST(CommandLine, WhatIsMovedOutHasSizesOrIsAutomatic) {
  EXPECT_EQ(Parse({})->options().move_out, std::nullopt);
  EXPECT_EQ(Parse({"--move-out", "auto"})->options().move_out, std::nullopt);
  EXPECT_EQ(Parse({"--move-out", "2GiB", "--move-out", "auto"})->options().move_out, std::nullopt);
  EXPECT_EQ(Parse({"--move-out", "64"})->options().move_out, uint64_t{64} << 20);
  EXPECT_EQ(Parse({"--move-out", "0"})->options().move_out, 0u);
  EXPECT_THAT(Parse({"--move-out", "much"}).status().message(),
              HasSubstr("'much' is not allowed; use a size with a unit, such as 16GiB or 512MiB, or auto"));
  EXPECT_THAT(Parse({"--test-device-memory", "0"}).status().message(), HasSubstr("at least 1MiB"));
  EXPECT_EQ(Parse({"--test-device-memory", "256MiB"})->options().test_device_memory, uint64_t{256} << 20);
}

TEST(CommandLine, FilesForWhatIsMovedOutHaveAFolderAndASize) {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    return std::string(Parse(arguments)->Complete().status().message());
  };
  EXPECT_THAT(refusal({"--move-out-files", "1GiB"}),
              HasSubstr("move-out-files: there is no folder for these files; set move-out-folder"));
  EXPECT_THAT(refusal({"--move-out-folder", "/tmp"}), HasSubstr("set move-out-files"));
  EXPECT_THAT(refusal({"--move-out-folder", "/tmp", "--move-out-files", "1GiB", "--move-out", "0"}),
              HasSubstr("move-out is 0, but memory goes to files by way of host memory"));
  EXPECT_EQ(refusal({"--move-out-folder", "/tmp", "--move-out-files", "1GiB"}), "");
  EXPECT_EQ(refusal({"--move-out-files", "0"}), "");
}

TEST(CommandLine, SecondsHaveThreeDecimalsAtMost) {
  EXPECT_EQ(Parse({})->options().turn_limit_ms, 10'000u);
  EXPECT_EQ(Parse({"--turn-limit", "0.1"})->options().turn_limit_ms, 100u);
  EXPECT_EQ(Parse({"--turn-limit", "2.125"})->options().turn_limit_ms, 2'125u);
  EXPECT_EQ(Parse({"--turn-limit", "600"})->options().turn_limit_ms, 600'000u);
  EXPECT_EQ(FindRow("turn-limit")->type.show(Parse({"--turn-limit", "0.25"})->options()), "0.25");
  for (const char* wrong : {"", "0.09", "600.001", "-1", "1.0001", "nan", "inf", "5s", "1e300"}) {
    EXPECT_THAT(Parse({"--turn-limit", wrong}).status().message(), HasSubstr("seconds from 0.1 to 600"))
        << wrong;
  }
}

TEST(CommandLine, UsageNamesEachOptionWithItsDefault) {
  const std::string usage = UsageText();
  for (const OptionRow& row : OptionRows()) {
    EXPECT_THAT(usage, HasSubstr("  --" + std::string(row.name)));
    if (row.value.empty()) continue;
    EXPECT_FALSE(row.Default().empty()) << row.name << " says no default";
  }
}

}  // namespace
}  // namespace xpud::config
