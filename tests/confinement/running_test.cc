// The confinement of running daemons is in force in each of their processes, and they work under it.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/daemon_process.h"
#include "xpud/tensor.h"

namespace xpud::e2e {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The fields of /proc/PID/status.
std::map<std::string, std::string> Status(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::map<std::string, std::string> fields;
  std::string name, value;
  while (std::getline(file, name, ':') && std::getline(file >> std::ws, value)) fields[name] = value;
  return fields;
}

// Returns the process or thread of an entry of /proc, or 0 for other entries.
int NumberOf(const std::filesystem::path& entry) {
  return static_cast<int>(std::strtol(entry.filename().c_str(), nullptr, 10));
}

std::vector<int> ChildrenOf(int pid) {
  std::vector<int> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int child = NumberOf(entry.path());
    if (child > 0 && Status(child)["PPid"] == std::to_string(pid)) children.push_back(child);
  }
  return children;
}

int ChildNamed(const DaemonProcess& daemon, const std::string& name) {
  for (const int child : ChildrenOf(daemon.pid()))
    if (Status(child)["Name"] == name) return child;
  return -1;
}

void ExpectConfined(int pid) {
  auto status = Status(pid);
  EXPECT_EQ(status["Seccomp"], "2") << status["Name"];
  EXPECT_EQ(status["NoNewPrivs"], "1") << status["Name"];
}

float Double(Session& session, float value) {
  const auto result =
      Mul(*Tensor::FromHost(session.DefaultQueue(0), std::span<const float>(&value, 1), {1}), 2.0)
          ->ToFloats();
  return result.ok() ? (*result)[0] : -1;
}

TEST(Confinement, IsInForceInEveryThreadOfADaemon) {
  setenv("XPUD_CUDA_LIBRARY", "", 1);
  const DaemonProcess daemon({"--device", "auto", "--executor", "auto"});  // looks for GPUs
  unsetenv("XPUD_CUDA_LIBRARY");
  size_t threads = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(daemon.pid()) + "/task")) {
    ExpectConfined(NumberOf(entry.path()));
    ++threads;
  }
  EXPECT_GT(threads, 3);
  EXPECT_THAT(daemon.Log(), HasSubstr("confined landlock="));
  EXPECT_THAT(daemon.Log(), HasSubstr("seccomp=on"));
  const int compiler = ChildNamed(daemon, "xpud-compilers");
  EXPECT_THAT(ChildrenOf(daemon.pid()), ElementsAre(compiler)) << "a spawner where nothing is to be started";
  ExpectConfined(compiler);
  const std::vector<int> forked = ChildrenOf(compiler);
  ASSERT_EQ(forked.size(), 1) << "the one that makes a fork for each kernel";
  EXPECT_EQ(Status(forked[0])["Name"], "xpud-compile0");
  ExpectConfined(forked[0]);
}

TEST(Confinement, IsInForceInTheSpawnerAndInEveryExecutor) {
  const DaemonProcess daemon({"--executor", "process"});
  const auto session = daemon.Connect();
  EXPECT_EQ(Double(*session, 21), 42);
  const auto spare_is_there = [&] { return ChildNamed(daemon, "xpud-spare") > 0; };
  EXPECT_TRUE(Within(milliseconds(10000), spare_is_there));
  EXPECT_EQ(ChildrenOf(daemon.pid()).size(), 4) << "the compiler, the spawner, an executor and a spare";
  for (const int child : ChildrenOf(daemon.pid())) ExpectConfined(child);
  const int first = ChildNamed(daemon, "xpud-executor");
  ASSERT_GT(first, 0);
  SignalProcess(first, SIGKILL);
  EXPECT_TRUE(Within(milliseconds(10000), [&] { return daemon.StatusOf("executors_replaced") == 1; }));
  const int next = ChildNamed(daemon, "xpud-executor");
  ASSERT_GT(next, 0);
  EXPECT_NE(next, first);
  ExpectConfined(next);
  EXPECT_EQ(Status(next)["Seccomp_filters"], "2") << "the spawner's, and its own";
  EXPECT_EQ(Double(*session, 4), 8);
}

TEST(Confinement, ADaemonWithoutItsSpawnerServesOnUntilItNeedsAnExecutor) {
  const DaemonProcess daemon({"--executor", "process"});
  const auto session = daemon.Connect();
  EXPECT_EQ(Double(*session, 21), 42);
  const int spawner = ChildNamed(daemon, "xpud-spawner"), executor = ChildNamed(daemon, "xpud-executor");
  ASSERT_GT(spawner, 0);
  ASSERT_GT(executor, 0);
  int spare = 0;
  ASSERT_TRUE(Within(milliseconds(10000), [&] { return (spare = ChildNamed(daemon, "xpud-spare")) > 0; }));
  SignalProcess(spawner, SIGKILL);
  EXPECT_EQ(Double(*session, 3), 6);
  SignalProcess(executor, SIGKILL);
  EXPECT_TRUE(Within(milliseconds(10000), [&] { return daemon.StatusOf("executors_replaced") == 1; }));
  EXPECT_EQ(daemon.StatusOf("executor_pid"), spare);
  EXPECT_EQ(Double(*session, 5), 10);
  SignalProcess(spare, SIGKILL);
  absl::Status status;
  EXPECT_TRUE(Within(milliseconds(20000), [&] {
    const float one = 1;
    const auto tensor = Tensor::FromHost(session->DefaultQueue(0), std::span<const float>(&one, 1), {1});
    status = tensor.ok() ? Mul(*tensor, 2.0)->ToFloats().status() : tensor.status();
    return !status.ok();
  }));
  EXPECT_NE(status.message(), "");
  EXPECT_GT(daemon.StatusOf("pid"), 0) << "the daemon answers";
  EXPECT_THAT(daemon.Log(), HasSubstr("the spawner of executors is gone"));
}

TEST(Confinement, TheSpawnerEndsWithItsDaemonWhateverEndsThat) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    DaemonProcess daemon({"--executor", "process"});
    const int spawner = ChildNamed(daemon, "xpud-spawner");
    ASSERT_GT(spawner, 0);
    if (signal == SIGTERM) {  // the daemon does not wait for the spawner at its end
      int spare = 0;
      ASSERT_TRUE(
          Within(milliseconds(10000), [&] { return (spare = ChildNamed(daemon, "xpud-spare")) > 0; }));
      SignalProcess(spawner, SIGSTOP);
      SignalProcess(ChildNamed(daemon, "xpud-executor"), SIGKILL);
      ASSERT_TRUE(Within(milliseconds(10000), [&] { return daemon.StatusOf("executor_pid") == spare; }));
    }
    daemon.Kill(signal);
    const auto ended = [&] { return Status(spawner)["Name"].empty() || Status(spawner)["State"][0] == 'Z'; };
    EXPECT_TRUE(Within(milliseconds(5000), ended)) << signal;
  }
}

TEST(Confinement, IsOffOnlyWhereItIsSwitchedOff) {
  const DaemonProcess off({"--device", "cpu", "--executor", "thread", "--confine", "off"});
  EXPECT_EQ(Status(off.pid())["Seccomp"], "0");
  EXPECT_THAT(off.Log(), HasSubstr("confined landlock=off seccomp=off"));
  const DaemonProcess log({"--device", "cpu", "--executor", "thread", "--confine", "log"});
  EXPECT_EQ(Status(log.pid())["Seccomp"], "2");
  EXPECT_THAT(log.Log(), HasSubstr("confined landlock=off seccomp=log"));
  EXPECT_EQ(Double(*log.Connect(), 2), 4);
}

}  // namespace
}  // namespace xpud::e2e
