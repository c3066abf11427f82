// The Nth call of Level Zero fails, for every N of a small program's run (with $XPUD_TEST_FULL) or for some.
// Each time, the daemon refuses to start and says why, or the program gets an error or correct results, the
// next program gets correct results, and the daemon ends normally.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/status_macros.h"
#include "tests/e2e/daemon_process.h"
#include "tests/inject/injected_daemon.h"
#include "xpud/tensor.h"

namespace xpud::inject {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

constexpr auto kMaxRun = seconds(20);

absl::Status ExpectAll(const absl::StatusOr<Tensor>& tensor, float value) {
  RETURN_IF_ERROR(tensor.status());
  ASSIGN_OR_RETURN(const std::vector<float> found, tensor->ToFloats());
  for (const float element : found)
    if (element != value) return absl::DataLossError(absl::StrCat("found ", element, ", not ", value));
  return absl::OkStatus();
}

// Computed tensors, and the value of their elements.
using Kept = std::vector<std::pair<Tensor, float>>;

absl::Status ComputeOn(const Queue& queue, Kept& kept) {
  const std::vector<float> ones(32 * 32, 1);
  const auto keep = [&](const absl::StatusOr<Tensor>& tensor, float value) -> absl::StatusOr<Tensor> {
    if (tensor.ok()) kept.emplace_back(*tensor, value);
    return tensor;
  };
  ASSIGN_OR_RETURN(const Tensor a, keep(Tensor::FromHost(queue, std::span<const float>(ones), {32, 32}), 1));
  ASSIGN_OR_RETURN(const Tensor b, keep(Mul(a, 2.0), 2));
  RETURN_IF_ERROR(ExpectAll(keep(Matmul(a, b), 64), 64));
  RETURN_IF_ERROR(ExpectAll(keep(Sum(b, 0), 64), 64));
  RETURN_IF_ERROR(ExpectAll(keep(Softmax(a, 1), 1.0F / 32), 1.0F / 32));
  Tensor x = a;
  for (int i = 0; i < 40; ++i) {
    ASSIGN_OR_RETURN(x, keep(Mul(x, 1.0), 1));
  }
  return ExpectAll(keep(Add(x, a), 2), 2);
}

absl::Status CopyThroughHostMemory(Session& session, const Queue& queue) {
  constexpr size_t kBytes = 1 << 20;
  ASSIGN_OR_RETURN(const HostBuffer host, session.AllocateHost(kBytes));
  ASSIGN_OR_RETURN(const Buffer buffer, queue.Allocate(kBytes));
  std::fill(host.bytes().begin(), host.bytes().end(), std::byte{7});
  RETURN_IF_ERROR(queue.StartUpload(host.bytes(), buffer.handle(), 0));
  RETURN_IF_ERROR(queue.Synchronize());
  std::fill(host.bytes().begin(), host.bytes().end(), std::byte{0});
  RETURN_IF_ERROR(queue.StartDownload(buffer.handle(), 0, host.bytes()));
  RETURN_IF_ERROR(queue.Synchronize());
  if (!std::all_of(host.bytes().begin(), host.bytes().end(), [](std::byte b) { return b == std::byte{7}; }))
    return absl::DataLossError("host memory came back changed");
  return absl::OkStatus();
}

absl::Status UseQueues(Session& session, const Queue& first, Kept& kept) {
  ASSIGN_OR_RETURN(const Queue second, session.CreateQueue(0, -1));
  ASSIGN_OR_RETURN(const Event begin, first.Record(true));
  ASSIGN_OR_RETURN(const Buffer large, first.Allocate(20 << 20));  // a chunk of its own; drivers clear it
  RETURN_IF_ERROR(second.Wait(begin));
  RETURN_IF_ERROR(ComputeOn(second, kept));
  ASSIGN_OR_RETURN(const Event end, second.Record(true));
  RETURN_IF_ERROR(end.Synchronize());
  RETURN_IF_ERROR(end.ElapsedNanoseconds(begin).status());
  ASSIGN_OR_RETURN(const Queue third, session.CreateQueue(0));  // reads the tensors of the second queue again
  RETURN_IF_ERROR(third.Synchronize());
  return session.DestroyQueue(third);
}

// Both ways; the first source is freed and its memory written at once.
absl::Status CopyBetweenDevices(Session& session) {
  constexpr size_t kBytes = 1 << 20;
  const Queue queues[] = {session.DefaultQueue(0), session.DefaultQueue(1)};
  std::vector<std::byte> bytes(kBytes, std::byte{7});
  ASSIGN_OR_RETURN(const Buffer there, queues[1].Allocate(kBytes));
  {
    ASSIGN_OR_RETURN(const Buffer here, queues[0].Allocate(kBytes));
    RETURN_IF_ERROR(queues[0].Upload(bytes, here.handle(), 0));
    RETURN_IF_ERROR(queues[1].CopyFrom(queues[0], here.handle(), 0, there.handle(), 0, kBytes));
  }
  ASSIGN_OR_RETURN(const Buffer back, queues[0].Allocate(kBytes));
  RETURN_IF_ERROR(queues[0].Upload(std::vector<std::byte>(kBytes), back.handle(), 0));
  RETURN_IF_ERROR(queues[0].CopyFrom(queues[1], there.handle(), 0, back.handle(), 0, kBytes));
  std::ranges::fill(bytes, std::byte{0});
  RETURN_IF_ERROR(queues[0].Download(back.handle(), 0, bytes));
  if (std::ranges::count(bytes, std::byte{7}) != int64_t{kBytes})
    return absl::DataLossError("what was copied between devices came back changed");
  return queues[1].Synchronize();
}

absl::Status RunSteps(Session& session, Kept& kept) {
  const Queue queue = session.DefaultQueue(0);
  RETURN_IF_ERROR(ComputeOn(queue, kept));
  RETURN_IF_ERROR(CopyThroughHostMemory(session, queue));
  RETURN_IF_ERROR(UseQueues(session, queue, kept));
  if (session.devices().size() > 1) RETURN_IF_ERROR(CopyBetweenDevices(session));
  return queue.Synchronize();
}

// Runs the small program. Returns its first error; DataLoss for a wrong result, also after an error;
// DeadlineExceeded if it hangs.
absl::Status RunProgram(const std::string& address) {
  ConnectOptions options;
  options.address = address;
  options.start_daemon = false;
  options.interrupt = [limit = Clock::now() + kMaxRun] {
    return Clock::now() < limit ? absl::OkStatus() : absl::DeadlineExceededError("it hangs");
  };
  ASSIGN_OR_RETURN(const auto session, Session::Connect(options));
  Kept kept;
  absl::Status status = RunSteps(*session, kept);
  for (const auto& [tensor, value] : kept) {
    const absl::Status found = ExpectAll(tensor, value);
    if (absl::IsDataLoss(found) || absl::IsDeadlineExceeded(found)) return found;
    if (!found.ok() && !session->status().ok()) break;  // all later calls fail the same way
  }
  return status;
}

struct Mode {
  const char* name;
  std::vector<std::string> flags;
  bool replaces;       // whether a lost device is replaced
  bool plain = false;  // a driver without our extensions
};
const Mode kModes[] = {{"thread", {"--executor", "thread"}, false},
                       {"asynchronous", {"--executor", "thread", "--asynchronous"}, false},
                       {"plain", {"--executor", "thread"}, false, true},
                       {"process", {"--executor", "process"}, true},
                       {"peers", {"--executor", "thread", "--test-devices", "2"}, false},
                       {"peer_processes", {"--executor", "process", "--test-devices", "2"}, true}};
struct Kind {
  const char* name;
  ze_result_t result;
  bool sticks;
};
const Kind kKinds[] = {{"out of memory", ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, false},
                       {"unknown", ZE_RESULT_ERROR_UNKNOWN, false},
                       {"lost", ZE_RESULT_ERROR_DEVICE_LOST, true}};

class Injection : public ::testing::TestWithParam<Mode> {
 protected:
  Injection() {
    char pattern[] = "/tmp/xpud-inject-XXXXXX";
    folder_ = mkdtemp(pattern);
    if (GetParam().plain) setenv("XPUD_CPU_PLAIN", "1", 1);
  }
  ~Injection() override {
    unsetenv("XPUD_CPU_PLAIN");
    std::filesystem::remove_all(folder_);
  }

  uint64_t CountCalls() const {
    InjectedDaemon daemon(folder_, GetParam().flags, {});
    EXPECT_TRUE(daemon.serves()) << daemon.Log();
    EXPECT_TRUE(RunProgram(daemon.socket()).ok());
    EXPECT_EQ(daemon.End(), 0) << daemon.Log();
    return daemon.calls();
  }
  void FailAt(uint64_t call, const Kind& kind) const;
  void CheckLaterClients(const InjectedDaemon& daemon, const Kind& kind) const;

  std::string folder_;
};

void Injection::CheckLaterClients(const InjectedDaemon& daemon, const Kind& kind) const {
  EXPECT_TRUE(e2e::Within(seconds(5), [&] { return daemon.StatusOf("memory_used_bytes") == 0; }))
      << daemon.StatusOf("memory_used_bytes") << " bytes are left behind";
  const absl::Status next = RunProgram(daemon.socket());
  if (kind.sticks && !GetParam().replaces) {  // a lost device stays lost
    EXPECT_NE(next.code(), absl::StatusCode::kDataLoss) << next;
    EXPECT_NE(next.code(), absl::StatusCode::kDeadlineExceeded) << next;
    if (!next.ok()) EXPECT_THAT(std::string(next.message()), HasSubstr("device lost"));
  } else {
    EXPECT_TRUE(next.ok()) << "the next program: " << next;
  }
  EXPECT_GE(daemon.StatusOf("uptime_ns"), 0) << "the daemon is gone";
}

void Injection::FailAt(uint64_t call, const Kind& kind) const {
  InjectedDaemon daemon(folder_, GetParam().flags, {call, kind.result, kind.sticks});
  const absl::Status first = daemon.serves() ? RunProgram(daemon.socket()) : absl::OkStatus();
  SCOPED_TRACE(absl::StrCat(GetParam().name, ": call ", call, " ", daemon.failed_call(), ": ", kind.name));
  if (daemon.serves()) {
    EXPECT_NE(first.code(), absl::StatusCode::kDataLoss) << first;
    EXPECT_NE(first.code(), absl::StatusCode::kDeadlineExceeded) << first;
    EXPECT_NE(first.message().empty(), !first.ok());
    daemon.Disarm();  // the call may not have been reached
    CheckLaterClients(daemon, kind);
    EXPECT_EQ(daemon.End(), 0);
    // An executor reports that its device is lost before it ends.
    EXPECT_THAT(daemon.Log(), Not(HasSubstr("reason=\"it ended")));
  } else {
    EXPECT_EQ(daemon.End(), 1);
    EXPECT_THAT(daemon.Log(), HasSubstr("error failed error=\""));
  }
  if (HasFailure()) std::fprintf(stderr, "%s", daemon.Log().c_str());
}

// Every call, or every `step`th from a random one on.
TEST_P(Injection, WhateverCallFailsTheDaemonAndTheNextClientGoOn) {
  constexpr uint64_t kStep = 25;
  const bool full = std::getenv("XPUD_TEST_FULL") != nullptr;
  const char* const chosen = std::getenv("XPUD_INJECT_SEED");
  const unsigned seed =
      chosen != nullptr ? static_cast<unsigned>(std::strtoul(chosen, nullptr, 10)) : std::random_device{}();
  CountCalls();  // also compiles the kernels
  const uint64_t calls = CountCalls();
  ASSERT_GT(calls, 100);
  std::printf("%s: %llu calls; XPUD_INJECT_SEED=%u\n", GetParam().name,
              static_cast<unsigned long long>(calls), seed);
  std::minstd_rand random(seed);
  for (const Kind& kind : kKinds)
    for (uint64_t call = full ? 1 : 1 + random() % kStep; call <= calls; call += full ? 1 : kStep)
      FailAt(call, kind);
}

// The failing call allocates memory for the first tensor, outside any queue: its thread ends the executor at
// once.
TEST(LostDevice, IsWhatAnExecutorSaysBeforeItEnds) {
  char pattern[] = "/tmp/xpud-inject-XXXXXX";
  const std::string folder = mkdtemp(pattern);
  const std::vector<std::string> flags = {"--executor", "process"};
  uint64_t start = 0;
  {
    InjectedDaemon daemon(folder, flags, {});
    start = daemon.calls();
    EXPECT_TRUE(RunProgram(daemon.socket()).ok());
  }
  bool met = false;
  // The number of that call varies.
  for (uint64_t i = 0; !met && i < 200; ++i) {
    InjectedDaemon daemon(folder, flags, {start + 1 + i % 40, ZE_RESULT_ERROR_DEVICE_LOST, true});
    (void)RunProgram(daemon.socket());
    met = daemon.failed_call() == "zePhysicalMemCreate";
    if (!met) continue;
    e2e::Within(seconds(5), [&] { return daemon.Log().find("executor_lost") != std::string::npos; });
    EXPECT_THAT(daemon.Log(), HasSubstr("reason=\"its device faulted: device lost: zePhysicalMemCreate"));
  }
  EXPECT_TRUE(met);
  std::filesystem::remove_all(folder);
}

TEST(PciAddress, IsNotNeededForAStart) {
  char pattern[] = "/tmp/xpud-inject-XXXXXX";
  const std::string folder = mkdtemp(pattern);
  setenv("XPUD_CPU_PCI", "0000:17:00.0", 1);
  std::set<std::string> failed;
  // Calls of a start until both have failed.
  for (uint64_t call = 1; call <= 100 && failed.size() < 2; ++call) {
    InjectedDaemon daemon(folder, {"--executor", "thread"}, {call, ZE_RESULT_ERROR_UNKNOWN, false});
    const std::string name = daemon.failed_call();
    if (name != "zeDriverGetExtensionProperties" && name != "zeDevicePciGetPropertiesExt") continue;
    failed.insert(name);
    EXPECT_TRUE(daemon.serves()) << name << ": " << daemon.Log();
    EXPECT_EQ(daemon.End(), 0) << name;
  }
  EXPECT_THAT(failed, ElementsAre("zeDevicePciGetPropertiesExt", "zeDriverGetExtensionProperties"));
  unsetenv("XPUD_CPU_PCI");
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Modes, Injection, ::testing::ValuesIn(kModes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace xpud::inject
