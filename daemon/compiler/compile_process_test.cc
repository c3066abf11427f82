// Requests of loop kernels, and what goes wrong with them. The process is forked before the tests' threads.
#include "daemon/compiler/compile_process.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "daemon/confinement/confinement.h"
#include "gtest/gtest.h"
#include "kernels/loops/variant.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"

namespace xpud::compiler {
namespace {

std::unique_ptr<CompileProcess> StartConfined() {
  auto process = CompileProcess::Start([] {
    std::string in_force;
    confinement::FilesOptions files;
    files.reads_only_libraries = true;
    confinement::ConfineFiles(confinement::Mode::kOn, files, in_force);
    confinement::ConfineCalls(confinement::Mode::kOn, confinement::kCompiler, in_force);
  });
  return process.ok() ? *std::move(process) : nullptr;
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
    const auto there = process->Compile(target, Request()),
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
    EXPECT_EQ(process->Compile(kernels::Target::kHost, wrong).status().code(),
              absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(process->Compile(kernels::Target::kHost, request).ok());
}

TEST(CompileProcess, SeveralAtATime) {
  const auto process = StartConfined();
  ASSERT_NE(process, nullptr);
  const std::string request = Request();
  std::vector<std::thread> threads;
  std::array<bool, 4> ok = {};
  for (size_t i = 0; i < ok.size(); ++i)
    threads.emplace_back([&, i] { ok[i] = process->Compile(kernels::Target::kHost, request).ok(); });
  for (std::thread& thread : threads) thread.join();
  for (const bool each : ok) EXPECT_TRUE(each);
}

TEST(CompileProcess, ClosingEndsAWait) {
  const auto process = StartConfined();
  ASSERT_NE(process, nullptr);
  process->Close();
  EXPECT_TRUE(absl::IsInternal(process->Compile(kernels::Target::kHost, Request()).status()));
}

}  // namespace
}  // namespace xpud::compiler
