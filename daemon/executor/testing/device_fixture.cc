#include "daemon/executor/testing/device_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/driver.h"
#include "daemon/executor/process/executor_main.h"

namespace xpud::executor::testing {
namespace {

// What main prepares: none can be started beside threads, and a device closes its spawner.
struct Prepared {
  std::string driver;
  std::vector<std::unique_ptr<process::Spawner>> spawners;  // one for each test with executors
};
Prepared& ThePrepared() {
  static auto& prepared = *new Prepared;
  return prepared;
}

int CountTestsWithExecutors() {
  int count = 0;
  const auto& unit = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < unit.total_test_suite_count(); ++s) {
    const auto& suite = *unit.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t)
      if (!absl::EndsWith(suite.GetTestInfo(t)->name(), "/InProcess")) ++count;
  }
  return count * std::max(GTEST_FLAG_GET(repeat), 1);
}

}  // namespace

std::string NameOf(const ::testing::TestParamInfo<Driven>& info) {
  switch (info.param) {
    case Driven::kInProcess:
      return "InProcess";
    case Driven::kByExecutor:
      return "ByExecutor";
    case Driven::kByTwoExecutors:
      return "ByTwoExecutors";
  }
  return "";
}

void DeviceTest::SetUp() {
  auto& [driver, spawners] = ThePrepared();
  auto plan = PlanDevices(driver, "cpu", InProcess() ? ExecutorKind::kThread : ExecutorKind::kProcess);
  ASSERT_TRUE(plan.ok()) << plan.status();
  DevicesOptions options;
  options.plan = *std::move(plan);
  options.driver_library = driver;
  options.device = "cpu";
  options.wake = [] {};
  const bool two = GetParam() == Driven::kByTwoExecutors;
  options.batch_executor = two ? BatchExecutor::kOn : BatchExecutor::kOff;
  if (!InProcess()) {
    ASSERT_FALSE(spawners.empty());
    spawner_ = std::move(spawners.back());
    spawners.pop_back();
  }
  options.spawner = spawner_.get();
  auto devices = OpenDevices(options);
  ASSERT_TRUE(devices.ok()) << devices.status();
  device_ = std::move(devices->front());
  all_ = MakeQueue(PriorityClass::kInteractive);
  if (!two) return;
  batch_ = MakeQueue(PriorityClass::kBatch);
  PollUntil([&] { return device_->executor(ExecutorRole::kBatch).pid != 0; });
}

void DeviceTest::TearDown() {
  batch_ = nullptr;
  all_ = nullptr;
  device_ = nullptr;
}

std::vector<pid_t> DeviceTest::Drivers() const {
  if (InProcess()) return {getpid()};
  std::vector<pid_t> pids = {device_->executor(ExecutorRole::kAll).pid};
  if (batch_ != nullptr) pids.push_back(device_->executor(ExecutorRole::kBatch).pid);
  return pids;
}

void DeviceTest::PollUntil(const std::function<bool()>& reached) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!reached()) {
    device_->Poll();
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
}

std::unique_ptr<DeviceTest::Queue> DeviceTest::MakeQueue(PriorityClass priority) {
  auto made = std::make_unique<Queue>();
  made->host = *device_->AllocateHost(2 * kPart);
  made->queue = *device_->CreateQueue(priority, 1);
  made->queue->Watch(reinterpret_cast<uint64_t*>(made->host->address() + kPart));
  return made;
}

void DeviceTest::Finish(Queue& queue) {
  auto* const word = reinterpret_cast<uint64_t*>(queue.host->address() + kPart);
  ASSERT_TRUE(queue.queue->WriteValue(queue.host->OnDevice(word), ++queue.value).ok());
  PollUntil([&] { return std::atomic_ref<uint64_t>(*word).load() == queue.value; });
  queue.queue->Completed(queue.value);  // so the next executor does not run it again
}

std::string DeviceTest::Read(Queue& queue, const Chunk& chunk) {
  std::byte* const part = queue.host->address();
  EXPECT_TRUE(queue.queue->Copy(queue.host->OnDevice(part), chunk.address(), kPart).ok());
  Finish(queue);
  return std::string(reinterpret_cast<const char*>(part), kPart);
}

std::string DeviceTest::ReadByAll(const Chunk& chunk) {
  std::string read = Read(*all_, chunk);
  if (batch_ != nullptr) EXPECT_EQ(Read(*batch_, chunk), read) << "in the executor for batch";
  return read;
}

void DeviceTest::Write(const Chunk& chunk, char value) {
  const std::string bytes(kPart, value);
  EXPECT_TRUE(all_->queue->Upload(chunk.address(), std::as_bytes(std::span(bytes))).ok());
  Finish(*all_);
}

std::string PagesAt(pid_t process, const Chunk& chunk) {
  std::ifstream maps(absl::StrCat("/proc/", process, "/maps"));
  const auto address = reinterpret_cast<uint64_t>(chunk.address());
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    char dash = 0;
    std::string permissions;
    std::istringstream(line) >> std::hex >> begin >> dash >> end >> permissions;
    if (begin <= address && address < end) return permissions;
  }
  return "";
}

std::vector<pid_t> OtherProcesses() {
  std::vector<pid_t> found;
  std::error_code unreadable;  // a process of another user, or one that has ended
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid) || pid == getpid()) continue;
    if (std::filesystem::read_symlink(entry.path() / "exe", unreadable) == program) found.push_back(pid);
  }
  return found;
}

int RunDeviceTests(int argc, char** argv, const std::string& driver) {
  if (const auto serve = process::ServeArguments::FromArgv({argv, static_cast<size_t>(argc)}))
    process::ServeDevice(*serve);
  ::testing::InitGoogleTest(&argc, argv);
  auto& prepared = ThePrepared();
  prepared.driver = driver;
  const std::string back_ends[] = {"cpu"};
  if (!SetDriverEnvironment(driver, back_ends).ok()) return 1;
  for (int i = CountTestsWithExecutors(); i > 0; --i) {
    auto started = process::Spawner::Start({.driver_library = driver, .confine = ""}, [] {});
    if (!started.ok()) return 1;
    prepared.spawners.push_back(*std::move(started));
  }
  return RUN_ALL_TESTS();
}

}  // namespace xpud::executor::testing
