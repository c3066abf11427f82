// Requests of several clients, from several threads. The processes are forked before the tests' threads; what
// they compile is pretended, so that TSan sees the desk alone.
#include "daemon/compiler/compile_desk.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "proto/base/clock.h"

namespace xpud::compiler {
namespace {

using kernels::KernelOwner;

constexpr uint64_t kSecond = 1'000'000'000;

// "hang" hangs, and other requests are the answer.
absl::StatusOr<std::string> Pretend(const kernels::CodeTarget&, std::string_view request) {
  volatile bool forever = request == "hang";
  while (forever) {
  }
  return std::string(request);
}

// What a desk has answered.
class Client {
 public:
  explicit Client(CompileDesk& desk) : desk_(desk) {}

  uint64_t Ask(const std::shared_ptr<KernelOwner>& owner, const std::string& request) {
    return desk_.Compile({kernels::Target::kHost,
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
    process_ = *CompileProcess::Start([] {}, Pretend);
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

TEST_F(Desk, ThreadsAskJoinAndLookWhileItStops) {
  constexpr int kThreads = 4, kJobs = 100;
  constexpr uint64_t kJoined = 10;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kJobs; ++i) {
        auto owner = std::make_shared<KernelOwner>(static_cast<uint64_t>(t) + 1, i % 2 == 0);
        const uint64_t job = client_->Ask(owner, std::to_string(t * kJobs + i));
        for (uint64_t other = job; other + kJoined > job && other > 0; --other)  // other threads' jobs, too
          desk_->Join(other, {innocent_, innocent_->tenant()});
        EXPECT_EQ(desk_->state().failed, 0u);
      }
    });
  }
  EXPECT_EQ(*client_->Await("1"), "1");
  desk_->Stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(desk_->state().compiled, uint64_t{kThreads} * kJobs);
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
