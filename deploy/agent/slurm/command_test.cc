#include "deploy/agent/slurm/command.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::agent::slurm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(SlurmCommand, ReturnsWhatTheProgramPrints) {
  EXPECT_EQ(*RunCommand({"/bin/echo", "a  b", "$HOME"}), "a  b $HOME\n");
  EXPECT_EQ(*RunCommand({"/bin/cat"}), "");
  EXPECT_EQ(RunCommand({"/bin/sh", "-c", "head -c 1000000 /dev/zero"})->size(), 1'000'000u);
}

TEST(SlurmCommand, SaysWhyTheProgramFailed) {
  const auto failed = RunCommand({"/bin/sh", "-c", "echo no such job >&2; exit 3"});
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("ended with status 3: no such job"));
  EXPECT_THAT(std::string(RunCommand({"/bin/sh", "-c", "kill -9 $$"}).status().message()),
              HasSubstr("signal 9"));
  EXPECT_EQ(RunCommand({"/nowhere/scontrol"}).status().code(), absl::StatusCode::kNotFound);
}

TEST(SlurmCommand, HasLimits) {
  EXPECT_EQ(RunCommand({"/bin/sleep", "60"}, {.time = 50ms}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RunCommand({"/bin/sh", "-c", "exec >&- 2>&-; sleep 60"}, {.time = 50ms}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(RunCommand({"/usr/bin/yes"}, {.output = 1000}).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RunCommand({"/bin/sh", "-c", "yes >&2"}, {.time = 50ms}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace xpud::agent::slurm
