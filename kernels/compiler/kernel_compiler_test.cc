// Several libraries, each with its own thread, on one compiler.
#include "kernels/compiler/kernel_compiler.h"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/compiler/skeleton.h"

namespace xpud::kernels {
namespace {

struct FillKey {
  int number = 0;

  void Visit(auto& visit) { visit(number, 16); }
};

template <typename Side>
struct FillArguments {
  typename Side::Pointer out;
  typename Side::Integer at;
  typename Side::Immediate value;

  void Visit(const FillKey&, auto& visit) {
    visit(out);
    visit(at);
    visit.Immediate(value, ScalarOf(ops::DType::kFloat32));
  }
};

// Each library has one, as planners do. Counts what it emits, and calls `during` while it does.
class FillSkeleton : public SkeletonOf<FillKey, ops::Family::kTest, FillArguments, 3> {
 public:
  explicit FillSkeleton(std::function<absl::Status()> during = nullptr) : during_(std::move(during)) {}

  std::string Name(const FillKey& key) const override { return absl::StrCat("fill_", key.number); }
  absl::Status EmitBody(const FillKey&, const FillArguments<Emitted>& arguments, Emitter& e) const override {
    ++emitted_;
    e.Store(ops::DType::kFloat32, arguments.out, arguments.at, arguments.value,
            ScalarOf(ops::DType::kFloat32));
    return during_ ? during_() : absl::OkStatus();
  }
  int emitted() const { return emitted_; }

 private:
  const std::function<absl::Status()> during_;
  mutable std::atomic<int> emitted_{0};
};

// A library's side: a skeleton, a client and how often it was told that something is ready.
struct Side {
  explicit Side(std::shared_ptr<KernelCompiler> compiler, std::function<absl::Status()> during = nullptr,
                KernelCompiler::Assembler assemble = nullptr)
      : skeleton(std::move(during)),
        client(std::move(compiler), [ready = ready] { ++*ready; }, std::move(assemble)) {
    EXPECT_TRUE(client.Start().ok());
  }

  std::shared_ptr<const Code> Find(int number) { return client.Find(skeleton, FillSkeleton::Pack({number})); }

  const std::shared_ptr<std::atomic<int>> ready = std::make_shared<std::atomic<int>>(0);
  FillSkeleton skeleton;
  KernelCompiler::Client client;
};

std::shared_ptr<KernelCompiler> Compiler() { return *KernelCompiler::Create({}); }

// Keeps the compile thread busy until Release.
class Plug {
 public:
  explicit Plug(const std::shared_ptr<KernelCompiler>& compiler)
      : side_(compiler, [this] {
          entered_ = true;
          while (!released_) std::this_thread::yield();
          return absl::OkStatus();
        }) {
    code_ = side_.Find(9999);
    while (!entered_) std::this_thread::yield();
  }
  ~Plug() { Release(); }
  void Release() { released_ = true; }
  // Returns when the compile thread has done what was queued before.
  void Flush() {
    Release();
    side_.Find(9998);
    side_.client.WaitForCompiles();
  }

 private:
  std::atomic<bool> entered_{false}, released_{false};
  Side side_;
  std::shared_ptr<const Code> code_;
};

TEST(KernelCompiler, WhatTwoThreadsAskForAtOnceIsCompiledOnce) {
  const auto compiler = Compiler();
  Side a(compiler), b(compiler);
  std::shared_ptr<const Code> codes[2];
  const auto ask = [](Side& side, std::shared_ptr<const Code>& code) {
    code = side.Find(1);
    while (code->state() == Code::State::kPending) std::this_thread::yield();
    side.client.WaitForCompiles();
  };
  std::thread other([&] { ask(b, codes[1]); });
  ask(a, codes[0]);
  other.join();
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_EQ(codes[0]->state(), Code::State::kReady);
  EXPECT_EQ(a.skeleton.emitted() + b.skeleton.emitted(), 1);
  const KernelCounters one = a.client.counters(), two = b.client.counters();
  EXPECT_EQ(one.compiled + two.compiled, 1u);
  EXPECT_EQ(one.shared_hits + two.shared_hits, 1u);
  EXPECT_EQ((one.compile_ns > 0) + (two.compile_ns > 0), 1);
  EXPECT_EQ(compiler->size(), 1u);
}

TEST(KernelCompiler, EachOfThoseWhoWaitIsTold) {
  const auto compiler = Compiler();
  Plug plug(compiler);
  Side a(compiler), b(compiler);
  const auto code = a.Find(1);
  EXPECT_EQ(b.Find(1), code);
  EXPECT_EQ(code->state(), Code::State::kPending);
  EXPECT_EQ(*a.ready + *b.ready, 0);
  plug.Release();
  b.client.WaitForCompiles();
  a.client.WaitForCompiles();
  EXPECT_EQ(*a.ready, 1);
  EXPECT_EQ(*b.ready, 1);
  EXPECT_EQ(a.Find(1)->state(), Code::State::kReady) << "later ones find it ready";
}

TEST(KernelCompiler, WhatAGoneClientAskedForIsMadeForTheOthers) {
  const auto compiler = Compiler();
  Plug plug(compiler);
  auto gone = std::make_unique<Side>(compiler);
  Side stays(compiler);
  (void)gone->Find(1);
  const auto code = stays.Find(1);
  const auto told = gone->ready;
  gone.reset();  // and its skeleton
  plug.Release();
  stays.client.WaitForCompiles();
  EXPECT_EQ(code->state(), Code::State::kReady);
  EXPECT_EQ(stays.skeleton.emitted(), 1);
  EXPECT_EQ(stays.client.counters().compiled, 1u);
  EXPECT_EQ(*told, 0);
}

TEST(KernelCompiler, WhatOnlyGoneClientsAskedForIsNotMade) {
  const auto compiler = Compiler();
  Plug plug(compiler);
  auto gone = std::make_unique<Side>(compiler);
  (void)gone->Find(1);
  gone.reset();
  plug.Flush();
  EXPECT_EQ(compiler->size(), 1u) << "the plug's own";
  Side later(compiler);
  const auto code = later.Find(1);
  later.client.WaitForCompiles();
  EXPECT_EQ(later.client.counters().compiled, 1u);
}

TEST(KernelCompiler, AClientEndsOnceItsSkeletonIsNotUsed) {
  const auto compiler = Compiler();
  std::atomic<bool> entered{false}, released{false}, ended{false};
  auto busy = std::make_unique<Side>(compiler, [&] {
    entered = true;
    while (!released) std::this_thread::yield();
    return absl::OkStatus();
  });
  Side other(compiler);
  (void)busy->Find(1);
  const auto code = other.Find(1);
  while (!entered) std::this_thread::yield();
  std::thread end([&] {
    busy.reset();
    ended = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(ended);
  released = true;
  end.join();
  other.client.WaitForCompiles();
  EXPECT_EQ(code->state(), Code::State::kReady);
  EXPECT_EQ(other.skeleton.emitted(), 0);
}

TEST(KernelCompiler, CodeIsKeptUntilTheLastClientDropsIt) {
  const auto compiler = Compiler();
  Side a(compiler), b(compiler);
  auto one = a.Find(1), two = b.Find(1);
  a.client.WaitForCompiles();
  a.client.Drop(std::move(one));
  EXPECT_EQ(compiler->size(), 1u);
  EXPECT_EQ(two->state(), Code::State::kReady);
  EXPECT_FALSE(two->image().bytes.empty());
  one = a.Find(1);
  EXPECT_EQ(one, two);
  EXPECT_EQ(a.client.counters().shared_hits + b.client.counters().shared_hits, 2u);
  a.client.Drop(std::move(one));
  b.client.Drop(std::move(two));
  EXPECT_EQ(compiler->size(), 0u);
  (void)b.Find(1);
  b.client.WaitForCompiles();
  EXPECT_EQ(a.client.counters().compiled + b.client.counters().compiled, 2u);
}

TEST(KernelCompiler, FailuresAreShared) {
  const auto compiler = Compiler();
  const auto fails = [] { return absl::UnimplementedError("no such instruction"); };
  Side a(compiler, fails), b(compiler, fails);
  const auto code = a.Find(7);
  a.client.WaitForCompiles();
  ASSERT_EQ(code->state(), Code::State::kFailed);
  EXPECT_EQ(code->failure(), absl::UnimplementedError("kernel fill_7: no such instruction"));
  EXPECT_EQ(b.Find(7), code);
  EXPECT_EQ(b.skeleton.emitted(), 0);
  EXPECT_EQ(a.client.counters().failed, 1u);
  EXPECT_EQ(b.client.counters().failed, 0u);
  EXPECT_EQ(b.client.counters().shared_hits, 1u);
}

std::shared_ptr<KernelCompiler> AssemblingCompiler() {
  return *KernelCompiler::Create({.target = Target::kNvptx, .assembles = true});
}
absl::StatusOr<std::string> IsLost(const std::string&) {
  return absl::UnavailableError("the device is lost");
}
absl::StatusOr<std::string> Works(const std::string&) { return "cubin"; }

TEST(KernelCompiler, ALostDeviceFailsOnlyThoseWhoAskNobodyElse) {
  const auto compiler = AssemblingCompiler();
  Side lost(compiler, nullptr, IsLost), works(compiler, nullptr, Works);
  const auto failed = lost.Find(1);
  lost.client.WaitForCompiles();
  EXPECT_EQ(failed->failure(), absl::UnavailableError("kernel fill_1: the device is lost"));
  const auto ready = works.Find(1);
  works.client.WaitForCompiles();
  ASSERT_EQ(ready->state(), Code::State::kReady);
  EXPECT_EQ(ready->image().bytes, "cubin");
  EXPECT_EQ(lost.Find(1), ready) << "made by the other device's linker";
}

TEST(KernelCompiler, WhereADeviceIsLostTheNextOneAssembles) {
  const auto compiler = AssemblingCompiler();
  std::atomic<bool> released{false};
  Side plug(
      compiler,
      [&] {
        while (!released) std::this_thread::yield();
        return absl::OkStatus();
      },
      Works);
  Side lost(compiler, nullptr, IsLost), works(compiler, nullptr, Works);
  (void)plug.Find(9999);
  const auto code = lost.Find(1);
  EXPECT_EQ(works.Find(1), code);
  released = true;
  lost.client.WaitForCompiles();
  ASSERT_EQ(code->state(), Code::State::kReady);
  EXPECT_EQ(code->image().bytes, "cubin");
  EXPECT_EQ(lost.client.counters().failed, 1u);
  EXPECT_EQ(works.client.counters().compiled, 1u);
}

TEST(KernelCompiler, WhoAsksWhileALostDeviceAssemblesIsServed) {
  const auto compiler = AssemblingCompiler();
  Side works(compiler, nullptr, Works);
  std::shared_ptr<const Code> late;
  Side lost(compiler, nullptr, [&](const std::string& ptx) {
    late = works.Find(1);
    return IsLost(ptx);
  });
  const auto code = lost.Find(1);
  lost.client.WaitForCompiles();
  works.client.WaitForCompiles();
  EXPECT_EQ(code, late);
  ASSERT_EQ(code->state(), Code::State::kReady);
  EXPECT_EQ(code->image().bytes, "cubin");
}

// An assembler that does not return until it is released, and whose device is lost then.
class StuckAssembler {
 public:
  KernelCompiler::Assembler assembler() {
    return [this](const std::string&) -> absl::StatusOr<std::string> {
      if (entered_.exchange(true)) return absl::UnavailableError("the device is lost");
      while (!released_) std::this_thread::yield();
      return "cubin";
    };
  }
  void AwaitEntry() const {
    while (!entered_) std::this_thread::yield();
  }
  void Release() { released_ = true; }

 private:
  std::atomic<bool> entered_{false}, released_{false};
};

TEST(KernelCompiler, ADeviceThatDoesNotAnswerDelaysNoOther) {
  const auto compiler = AssemblingCompiler();
  StuckAssembler stuck;
  Side silent(compiler, nullptr, stuck.assembler()), works(compiler, nullptr, Works);
  const auto delayed = silent.Find(1);
  stuck.AwaitEntry();
  const auto code = works.Find(2);
  works.client.WaitForCompiles();
  EXPECT_EQ(code->state(), Code::State::kReady);
  EXPECT_EQ(delayed->state(), Code::State::kPending);
  stuck.Release();
  silent.client.WaitForCompiles();
  EXPECT_EQ(delayed->state(), Code::State::kReady);
}

TEST(KernelCompiler, WhatAGoneClientWasToAssembleIsAssembledByTheNext) {
  const auto compiler = AssemblingCompiler();
  StuckAssembler stuck;
  auto gone = std::make_unique<Side>(compiler, nullptr, stuck.assembler());
  Side works(compiler, nullptr, Works);
  const auto first = gone->Find(1), second = gone->Find(2);
  stuck.AwaitEntry();
  EXPECT_EQ(works.Find(2), second);
  std::thread end([&] { gone.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  stuck.Release();
  end.join();
  works.client.WaitForCompiles();
  ASSERT_EQ(second->state(), Code::State::kReady);
  EXPECT_EQ(works.client.counters().compiled, 1u);
}

TEST(KernelCompiler, PtxIsAssembledOnceForAll) {
  static constexpr char kPtx[] = ".version 7.8";
  const auto compiler = AssemblingCompiler();
  std::atomic<int> assembled{0};
  const auto counts = [&](const std::string& ptx) -> absl::StatusOr<std::string> {
    EXPECT_EQ(ptx, kPtx);
    ++assembled;
    return "cubin";
  };
  Side a(compiler, nullptr, counts), b(compiler, nullptr, counts);
  std::shared_ptr<const Code> other_code;
  std::thread other([&] { other_code = b.client.Assemble(kPtx); });
  const auto code = a.client.Assemble(kPtx);
  other.join();
  a.client.WaitForCompiles();
  b.client.WaitForCompiles();
  EXPECT_EQ(code, other_code);
  EXPECT_EQ(code->image().bytes, "cubin");
  EXPECT_EQ(assembled, 1);
}

TEST(KernelCompiler, OnDiskItKeepsWhatAnyClientUses) {
  const std::string directory = ::testing::TempDir() + absl::StrCat("xpud_compiler_", ::getpid());
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(directory),
                         std::filesystem::directory_iterator());
  };
  {
    const auto compiler = *KernelCompiler::Create({.cache_directory = directory, .cache_bytes = 1});
    Side a(compiler), b(compiler);
    auto one = a.Find(1), two = b.Find(1);
    a.client.WaitForCompiles();
    a.client.Drop(std::move(one));
    const auto second = a.Find(2);  // saved beyond the limit, so that what is not in use goes
    a.client.WaitForCompiles();
    EXPECT_EQ(files(), 2) << "one of them is in use by the other client";
    b.client.Drop(std::move(two));
    const auto third = a.Find(3);
    a.client.WaitForCompiles();
    EXPECT_EQ(files(), 2) << "nobody used the first any more";
  }
  const auto compiler = *KernelCompiler::Create({.cache_directory = directory});
  Side a(compiler), b(compiler);
  const auto code = a.Find(3);
  EXPECT_EQ(b.Find(3), code);
  b.client.WaitForCompiles();
  EXPECT_EQ(a.client.counters().disk_hits, 1u) << "that of who asked first";
  EXPECT_EQ(b.client.counters().disk_hits, 0u);
  EXPECT_EQ(b.client.counters().shared_hits, 1u);
  std::filesystem::remove_all(directory);
}

// A device's kernels on a shared compiler. Loads them as an executor would, and is told which to forget.
struct Device {
  Device(const std::shared_ptr<KernelCompiler>& compiler, size_t most)
      : cache(compiler, nullptr, nullptr, most, [this](std::vector<const Kernel*>& kernels) {
          for (const Kernel* kernel : kernels) loaded.erase(kernel->index);
          kernels.clear();
        }) {}

  const Kernel* Find(int number) {
    for (;;) {
      const auto kernel = cache.Find(skeleton, FillKey{number});
      if (!kernel.ok()) return nullptr;
      if (*kernel == nullptr) {
        cache.WaitForCompiles();
        continue;
      }
      loaded[(*kernel)->index] = *kernel;
      return *kernel;
    }
  }

  std::map<uint32_t, const Kernel*> loaded;  // by index
  FillSkeleton skeleton;
  KernelCache cache;
};

TEST(SharedKernels, HaveTheSameCodeAndIndicesOfTheirOwn) {
  const auto compiler = Compiler();
  Device a(compiler, 16), b(compiler, 16);
  (void)b.Find(5);
  const Kernel *one = a.Find(1), *two = b.Find(1);
  EXPECT_NE(one, two);
  EXPECT_EQ(one->module, two->module);
  EXPECT_EQ(one->entry, "fill_1");
  EXPECT_EQ(one->entry, two->entry);
  EXPECT_EQ(one->signature, two->signature);
  EXPECT_EQ(one->index, 0u);
  EXPECT_EQ(two->index, 1u);
  EXPECT_EQ(a.cache.counters().compiled, 1u);
  EXPECT_EQ(b.cache.counters().compiled, 1u);
  EXPECT_EQ(b.cache.counters().shared_hits, 1u);
  const uint64_t hits = b.cache.counters().memory_hits;
  EXPECT_EQ(b.Find(1), two);
  EXPECT_EQ(b.cache.counters().memory_hits, hits + 1);
}

TEST(SharedKernels, EvictionOfOneDeviceDoesNotDisturbAnother) {
  const auto compiler = Compiler();
  Device small(compiler, 4), large(compiler, 64);
  const Kernel* const kept = large.Find(0);
  const std::string code = kept->module->bytes;
  for (int number = 0; number < 20; ++number) (void)small.Find(number);
  EXPECT_LE(small.loaded.size(), 4u);
  EXPECT_EQ(large.Find(0), kept);
  EXPECT_EQ(kept->module->bytes, code);
  EXPECT_EQ(large.cache.counters().compiled, 1u);
  EXPECT_EQ(small.cache.counters().compiled, 19u);
  EXPECT_LE(compiler->size(), 5u) << "evicted code that nobody uses is freed";
  EXPECT_EQ(small.Find(0)->module, kept->module) << "not compiled again";
  EXPECT_EQ(small.cache.counters().compiled, 19u);
}

TEST(SharedKernels, OutliveTheDeviceThatAskedFirst) {
  const auto compiler = Compiler();
  auto first = std::make_unique<Device>(compiler, 16);
  Device second(compiler, 16);
  const std::string code = first->Find(1)->module->bytes;
  const Kernel* const kernel = second.Find(1);
  first.reset();
  EXPECT_EQ(kernel->module->bytes, code);
  EXPECT_EQ(second.Find(1), kernel);
  EXPECT_EQ(second.skeleton.emitted(), 0);
}

TEST(SharedKernels, ManyThreadsFindAndEvictAndEnd) {
  constexpr int kThreads = 4, kRounds = 60, kNumbers = 12;
  const auto compiler = Compiler();
  std::atomic<int> emitted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&compiler, &emitted, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int life = 0; life < 3; ++life) {
        Device device(compiler, 6);
        for (int round = 0; round < kRounds; ++round) {
          const int number = static_cast<int>(random() % kNumbers);
          if (random() % 4 == 0) {  // does not wait
            (void)device.cache.Find(device.skeleton, FillKey{number});
            continue;
          }
          const Kernel* const kernel = device.Find(number);
          ASSERT_NE(kernel, nullptr);
          ASSERT_EQ(kernel->entry, absl::StrCat("fill_", number));
          ASSERT_NE(kernel->module->bytes.find(kernel->entry), std::string::npos);
          ASSERT_LE(kernel->index, 8u);
        }
        emitted += device.skeleton.emitted();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(emitted, kThreads * 3 * kNumbers);
  Side last(compiler);
  const auto code = last.Find(100);
  last.client.WaitForCompiles();
  EXPECT_EQ(compiler->size(), 1u) << "no code of the devices that ended is kept";
}

// Kernels that are made of what clients send.
class ClientSkeleton : public FillSkeleton {
 public:
  std::string RequestOf(const KernelKey& key) const override { return "request of " + NameOf(key); }
  std::shared_ptr<const void> Keep(const KernelKey&) const override { return std::make_shared<int>(); }
};

// Compiles what a test tells it to.
class FakeService : public CompileService {
 public:
  uint64_t Compile(Job job) override {
    MutexLock lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.NotifyAll();
    return jobs_.size();
  }
  void Join(uint64_t job, const Waiter& waiter) override {
    MutexLock lock(mutex_);
    jobs_[job - 1].waiters.push_back(waiter);
  }
  // Waits for a job, by number.
  Job& Await(uint64_t job) {
    MutexLock lock(mutex_);
    while (jobs_.size() < job) changed_.Wait(mutex_);
    return jobs_[job - 1];
  }
  size_t jobs() {
    MutexLock lock(mutex_);
    return jobs_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
};

class Elsewhere : public ::testing::Test {
 protected:
  static constexpr size_t kMost = 600;

  const Kernel* Find(const std::shared_ptr<KernelOwner>& owner, int number) {
    cache_.ServeFor(owner.get());
    last_ = cache_.Find(skeleton_, FillKey{number});
    return last_.ok() ? *last_ : nullptr;
  }
  // Answers a job, and waits until all know it.
  void Answer(uint64_t job, absl::StatusOr<std::string> code) {
    std::exchange(service_.Await(job).done, nullptr)(std::move(code), 1000);
    cache_.WaitForCompiles();
  }
  const Kernel* Make(const std::shared_ptr<KernelOwner>& owner, int number) {
    if (const Kernel* const known = Find(owner, number)) return known;
    Answer(++answered_, "code");
    return Find(owner, number);
  }

  FakeService service_;
  ClientSkeleton skeleton_;
  KernelCache cache_{*KernelCompiler::Create({.elsewhere = &service_}), nullptr, nullptr, kMost, nullptr};
  const bool started_ = cache_.Start().ok();
  const std::shared_ptr<KernelOwner> a_ = KernelOwner::Create("uid:1"), b_ = KernelOwner::Create("uid:2");
  absl::StatusOr<const Kernel*> last_ = nullptr;
  uint64_t answered_ = 0;
};

TEST_F(Elsewhere, AKernelIsCompiledOnceForAllWhoWait) {
  EXPECT_EQ(Find(a_, 1), nullptr);
  const CompileService::Job& job = service_.Await(1);
  EXPECT_EQ(job.request, "request of fill_1");
  EXPECT_EQ(Find(b_, 1), nullptr);
  EXPECT_EQ(Find(a_, 1), nullptr);
  ASSERT_EQ(job.waiters.size(), 2u);
  EXPECT_EQ(job.waiters[0].owner.lock(), a_);
  EXPECT_EQ(job.waiters[1].tenant, b_->tenant());
  EXPECT_EQ(a_->pending(), 1u);
  EXPECT_EQ(b_->pending(), 1u);
  Answer(1, "code");
  EXPECT_NE(Find(b_, 1), nullptr);
  EXPECT_NE(Find(a_, 1), nullptr);
  EXPECT_EQ(a_->pending() + b_->pending(), 0u);
  EXPECT_EQ(service_.jobs(), 1u);
  EXPECT_EQ(cache_.counters().compile_ns, 1000u);
}

TEST_F(Elsewhere, ACompilationThatWasEndedFailsOnceAndTheNextCallCompilesAgain) {
  EXPECT_EQ(Find(a_, 1), nullptr);
  Answer(1, absl::AbortedError("killed"));
  EXPECT_EQ(Find(a_, 1), nullptr);
  EXPECT_EQ(last_.status(), absl::AbortedError("kernel fill_1: killed"));
  EXPECT_EQ(Find(a_, 1), nullptr);
  EXPECT_TRUE(last_.ok());
  Answer(2, "code");
  EXPECT_NE(Find(a_, 1), nullptr);
}

TEST_F(Elsewhere, WhatItsSenderDidNotWaitForIsCompiledForTheNext) {
  EXPECT_EQ(Find(a_, 1), nullptr);
  Answer(1, absl::CancelledError("nobody waits"));
  EXPECT_EQ(Find(b_, 1), nullptr);
  EXPECT_TRUE(last_.ok()) << last_.status();
  Answer(2, "code");
  EXPECT_NE(Find(b_, 1), nullptr);
  EXPECT_EQ(cache_.counters().failed, 0u);
}

TEST_F(Elsewhere, AnErrorOfAKernelIsKept) {
  EXPECT_EQ(Find(a_, 1), nullptr);
  Answer(1, absl::DeadlineExceededError("too long"));
  for (const auto& owner : {a_, b_}) {
    EXPECT_EQ(Find(owner, 1), nullptr);
    EXPECT_TRUE(absl::IsDeadlineExceeded(last_.status()));
  }
  EXPECT_EQ(service_.jobs(), 1u);
}

TEST_F(Elsewhere, ATenantPushesOutItsOwnKernelsFirst) {
  for (int number = 0; number < 6; ++number) EXPECT_NE(Make(b_, number), nullptr);
  EXPECT_NE(Make(a_, 500), nullptr);
  EXPECT_NE(Make(b_, 500), nullptr) << "of both: it counts for none";
  for (int number = 1000; number < 2000; ++number) EXPECT_NE(Make(a_, number), nullptr);
  const uint64_t made = answered_;
  for (int number = 0; number < 6; ++number) EXPECT_NE(Make(b_, number), nullptr);
  EXPECT_NE(Make(b_, 500), nullptr);
  EXPECT_EQ(answered_, made) << "none was pushed out";
  EXPECT_NE(Make(a_, 1999), nullptr);
  EXPECT_EQ(answered_, made);
  EXPECT_NE(Make(a_, 1000), nullptr);
  EXPECT_EQ(answered_, made + 1) << "its own were";
}

TEST(KernelCompiler, WhatIsCompiledElsewhereIsAssembledHere) {
  FakeService service;
  const auto compiler =
      *KernelCompiler::Create({.target = Target::kNvptx, .assembles = true, .elsewhere = &service});
  ClientSkeleton skeleton;
  KernelCompiler::Client lost(compiler, nullptr, IsLost),
      works(compiler, nullptr, [](const std::string& ptx) {
        EXPECT_EQ(ptx, "ptx");
        return absl::StatusOr<std::string>("cubin");
      });
  ASSERT_TRUE(lost.Start().ok() && works.Start().ok());
  const auto code = lost.Find(skeleton, FillSkeleton::Pack({1}));
  EXPECT_EQ(works.Find(skeleton, FillSkeleton::Pack({1})), code);
  std::exchange(service.Await(1).done, nullptr)("ptx", 1000);
  works.WaitForCompiles();
  ASSERT_EQ(code->state(), Code::State::kReady);
  EXPECT_EQ(code->image().bytes, "cubin");
}

TEST(KernelCompiler, AnAnswerAfterTheEndOfACompilerIsDropped) {
  FakeService service;
  {
    const auto compiler = *KernelCompiler::Create({.elsewhere = &service});
    ClientSkeleton skeleton;
    KernelCompiler::Client client(compiler, nullptr, nullptr);
    ASSERT_TRUE(client.Start().ok());
    (void)client.Find(skeleton, FillSkeleton::Pack({1}));
    service.Await(1);
  }
  std::exchange(service.Await(1).done, nullptr)("code", 1000);
}

}  // namespace
}  // namespace xpud::kernels
