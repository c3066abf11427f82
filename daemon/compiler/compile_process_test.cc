// Requests of loop kernels, and what goes wrong with them. The processes are forked before the tests'
// threads.
#include "daemon/compiler/compile_process.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

#include "daemon/compiler/compile_desk.h"
#include "daemon/confinement/confinement.h"
#include "gtest/gtest.h"
#include "kernels/loops/variant.h"
#include "proto/base/clock.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"

namespace xpud::compiler {
namespace {

using kernels::KernelOwner;

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

// What a desk has answered. `owners` live as long as this.
class Client {
 public:
  explicit Client(CompileDesk& desk) : desk_(desk) {}

  void Ask(const std::shared_ptr<KernelOwner>& owner, const std::string& request) {
    desk_.Compile({kernels::Target::kHost,
                   request,
                   {{owner, owner->tenant()}},
                   [this, request](absl::StatusOr<std::string> code, uint64_t) {
                     MutexLock lock(mutex_);
                     answers_.insert_or_assign(request, std::move(code));
                     changed_.NotifyAll();
                   }});
  }
  absl::StatusOr<std::string> Await(const std::string& request) {
    MutexLock lock(mutex_);
    while (!answers_.contains(request)) changed_.Wait(mutex_);
    return answers_.at(request);
  }
  bool Has(const std::string& request) {
    MutexLock lock(mutex_);
    return answers_.contains(request);
  }

 private:
  CompileDesk& desk_;
  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, absl::StatusOr<std::string>> answers_ ABSL_GUARDED_BY(mutex_);
};

class Desk : public ::testing::Test {
 protected:
  void SetUp() override {
    process_ = StartConfined(Pretend);
    ASSERT_NE(process_, nullptr);
    desk_ = *CompileDesk::Start(*process_);
    client_ = std::make_unique<Client>(*desk_);
  }
  void TearDown() override { desk_.reset(); }

  const std::shared_ptr<KernelOwner> hostile_ = KernelOwner::Create("uid:1"),
                                     innocent_ = KernelOwner::Create("uid:2");
  std::unique_ptr<CompileProcess> process_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<CompileDesk> desk_;
};

TEST_F(Desk, AnswersEach) {
  for (int i = 0; i < 50; ++i) client_->Ask(i % 2 == 0 ? hostile_ : innocent_, std::to_string(i));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(*client_->Await(std::to_string(i)), std::to_string(i));
  EXPECT_EQ(desk_->state().compiled, 50u);
  EXPECT_GT(innocent_->compile_ns(), 0u);
}

TEST_F(Desk, AHangDelaysOthersLittleAndFailsForItsSender) {
  for (size_t i = 0; i < 2 * CompileDesk::kMaxAtOnce; ++i) client_->Ask(hostile_, "hang");
  const uint64_t began = NowNs();
  for (const std::string request : {"one", "two", "three"}) {
    client_->Ask(innocent_, request);
    EXPECT_EQ(*client_->Await(request), request);
  }
  EXPECT_LT(NowNs() - began, 5 * kSecond);
  EXPECT_FALSE(client_->Has("hang"));
  EXPECT_GE(desk_->state().overdue, 1u);
  EXPECT_LE(desk_->state().running, CompileDesk::kMaxAtOnce) << "those of one tenant";
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Await("hang").status()));
  EXPECT_GE(hostile_->compile_ns(), kMaxCompileSeconds * kSecond);
  EXPECT_LT(innocent_->compile_ns(), 5 * kSecond);
}

TEST_F(Desk, WhatNobodyWaitsForIsNotCompiled) {
  client_->Ask(hostile_, "hang");
  auto gone = std::make_shared<KernelOwner>(hostile_->tenant());
  for (size_t i = 0; i < CompileDesk::kMaxAtOnce; ++i) client_->Ask(hostile_, "hang");
  client_->Ask(gone, "of one that ends");
  gone.reset();
  client_->Ask(innocent_, "other");  // wakes the desk
  EXPECT_TRUE(client_->Await("other").ok());
  EXPECT_TRUE(absl::IsCancelled(client_->Await("of one that ends").status()));
}

TEST_F(Desk, AHangEndsWithItsClient) {
  auto gone = std::make_shared<KernelOwner>(hostile_->tenant());
  client_->Ask(gone, "hang");
  while (desk_->state().overdue == 0) usleep(1000);
  gone.reset();
  client_->Ask(innocent_, "wakes the desk");
  EXPECT_TRUE(absl::IsCancelled(client_->Await("hang").status()));
  EXPECT_TRUE(client_->Await("wakes the desk").ok());
  EXPECT_EQ(desk_->state().running, 0u);
}

size_t ForksOf(const CompileProcess& process) {
  const std::string path = "/proc/" + std::to_string(process.state().pid);
  std::ifstream children(path + "/task/" + std::to_string(process.state().pid) + "/children");
  return static_cast<size_t>(std::distance(std::istream_iterator<int>(children), {}));
}

TEST_F(Desk, StopsWhileKernelsHangAndTheirForksEnd) {
  client_->Ask(hostile_, "hang");
  client_->Ask(innocent_, "other");
  EXPECT_TRUE(client_->Await("other").ok());
  EXPECT_GE(ForksOf(*process_), 1u);
  const uint64_t began = NowNs();
  desk_->Stop();
  while (ForksOf(*process_) != 0 && NowNs() - began < 5 * kSecond) usleep(1000);
  EXPECT_LT(NowNs() - began, 5 * kSecond);
  EXPECT_FALSE(client_->Has("hang"));
}

}  // namespace
}  // namespace xpud::compiler
