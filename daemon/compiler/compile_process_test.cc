// Requests of loop kernels, and what goes wrong with them.
#include "daemon/compiler/compile_process.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "daemon/confinement/confinement.h"
#include "gtest/gtest.h"
#include "kernels/loops/variant.h"
#include "proto/base/clock.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"

namespace xpud::compiler {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

std::unique_ptr<CompileProcess> StartConfined(CompileProcess::Compiler compile = kernels::CompileRequested) {
  auto process = CompileProcess::Start(
      [] {
        std::string in_force;
        confinement::FilesOptions files;
        files.reads_only_libraries = true;
        confinement::ConfineFiles(confinement::Mode::kOn, files, in_force);
        confinement::ConfineCalls(confinement::Mode::kOn, confinement::kCompiler, in_force);
      },
      compile);
  return process.ok() ? *std::move(process) : nullptr;
}

// Compiles nothing: "hang" hangs, "crash" crashes, and other requests are the answer.
absl::StatusOr<std::string> Pretend(const kernels::CodeTarget&, std::string_view request) {
  volatile bool forever = request == "hang";
  while (forever) {
  }
  if (request == "crash") __builtin_trap();
  return std::string(request);
}

absl::StatusOr<std::string> Await(Compilation compilation) {
  for (;;) {
    pollfd ready = {compilation.fd(), compilation.events(), 0};
    (void)poll(&ready, 1, 100);
    if (auto answer = compilation.Continue(NowNs())) return *std::move(answer);
  }
}

absl::StatusOr<std::string> Compile(CompileProcess& process, const kernels::CodeTarget& target,
                                    const std::string& request) {
  auto begun = process.Begin(target, request);
  if (!begun.ok()) return begun.status();
  return Await(*std::move(begun));
}

std::string Request() {
  const loops::Kernel kernel = loops::testing::Softmax();
  const auto definition = *loops::Definition::Create(loops::Encode(kernel), "softmax");
  const loops::Body& body = kernel.bodies[0];
  const auto variant =
      kernels::LoopVariant::Intern(definition, 0,
                                   {.guarded = std::vector<bool>(body.statements.size()),
                                    .is_exact = std::vector<bool>(body.indices.size(), true),
                                    .is_natural = std::vector<bool>(body.indices.size(), true)});
  return variant->identity();
}

TEST(CompileProcess, GivesWhatIsCompiledHere) {
  const auto process = StartConfined();
  ASSERT_NE(process, nullptr);
  for (const kernels::CodeTarget& target :
       {kernels::CodeTarget(kernels::Target::kHost), kernels::CodeTarget(kernels::Target::kNvptx, "sm_90"),
        kernels::CodeTarget(kernels::Target::kSpirv)}) {
    const auto there = Compile(*process, target, Request()),
               here = kernels::CompileRequested(target, Request());
    ASSERT_TRUE(there.ok()) << there.status();
    ASSERT_TRUE(here.ok()) << here.status();
    EXPECT_EQ(*there, *here);
  }
}

TEST(CompileProcess, WrongRequestsFailAlone) {
  const auto process = StartConfined();
  ASSERT_NE(process, nullptr);
  const std::string request = Request();
  for (const std::string& wrong :
       {std::string(), request.substr(0, 20), request + "x", std::string(1000, 'a')})
    EXPECT_EQ(Compile(*process, kernels::Target::kHost, wrong).status().code(),
              absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Compile(*process, kernels::Target::kHost, request).ok());
}

TEST(CompileProcess, LongRequestsAndAnswersArriveWhole) {
  const auto process = StartConfined(Pretend);
  ASSERT_NE(process, nullptr);
  const std::string request(1 << 20, 'x');
  const auto answer = Compile(*process, kernels::Target::kHost, request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, request);
}

TEST(CompileProcess, ACrashFailsThatKernelAlone) {
  const auto process = StartConfined(Pretend);
  ASSERT_NE(process, nullptr);
  auto other = *process->Begin(kernels::Target::kHost, "other");
  EXPECT_TRUE(absl::IsAborted(Compile(*process, kernels::Target::kHost, "crash").status()));
  EXPECT_EQ(*Await(std::move(other)), "other");
  EXPECT_EQ(process->state().replaced, 0u);
}

// Waits until the process is another one than `before`.
CompileProcess::State AwaitReplacement(const CompileProcess& process, pid_t before) {
  for (const uint64_t end = NowNs() + 20 * kSecond; NowNs() < end; usleep(1000)) {
    const CompileProcess::State now = process.state();
    if (now.pid != 0 && now.pid != before) return now;
  }
  return process.state();
}

TEST(CompileProcess, OneThatIsKilledIsReplacedAndRequestsWaitForIt) {
  const auto process = StartConfined(Pretend);
  ASSERT_NE(process, nullptr);
  for (int i = 0; i < 3; ++i) {
    const pid_t before = AwaitReplacement(*process, 0).pid;
    auto under_way = *process->Begin(kernels::Target::kHost, "hang");
    EXPECT_TRUE(Compile(*process, kernels::Target::kHost, "first").ok()) << "so that the other has begun";
    ASSERT_EQ(kill(before, SIGKILL), 0);
    while (kill(before, 0) == 0) usleep(100);  // what it has just received would be lost
    const auto answer = Compile(*process, kernels::Target::kHost, "next");
    ASSERT_TRUE(answer.ok()) << answer.status();
    const CompileProcess::State after = AwaitReplacement(*process, before);
    EXPECT_NE(after.pid, before);
    EXPECT_EQ(after.replaced, static_cast<uint64_t>(i) + 1);
    EXPECT_FALSE(under_way.Continue(NowNs())) << "it goes on";
  }
}

}  // namespace
}  // namespace xpud::compiler
