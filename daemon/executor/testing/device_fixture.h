// For tests of devices: the CPU device, driven in this process, or in executor processes, which are the test
// program again. Its main is RunDeviceTests.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/executor/api/device.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/executor/devices.h"

namespace xpud::executor::testing {

enum class Driven { kInProcess, kByExecutor, kByTwoExecutors };  // two: one of them for class batch
std::string NameOf(const ::testing::TestParamInfo<Driven>& info);

class DeviceTest : public ::testing::TestWithParam<Driven> {
 protected:
  static constexpr size_t kPart = 4096;  // of a chunk, which is written and read

  void SetUp() override;  // opens the device and all its executors
  void TearDown() override;
  bool InProcess() const { return GetParam() == Driven::kInProcess; }
  // Those that drive the device. This process, if it does.
  std::vector<pid_t> Drivers() const;

  // Lets the device go on until `reached`.
  void PollUntil(const std::function<bool()>& reached);
  // By a queue of the first executor, or of class batch.
  std::string Read(const Chunk& chunk) { return Read(*all_, chunk); }
  void Write(const Chunk& chunk, char value);
  // What all executors read, if that is the same.
  std::string ReadByAll(const Chunk& chunk);

  std::unique_ptr<Device> device_;

 private:
  struct Queue {
    std::unique_ptr<HostMemory> host;  // a part, and the word that the queue writes
    std::unique_ptr<DeviceQueue> queue;
    uint64_t value = 0;
  };
  std::unique_ptr<Queue> MakeQueue(PriorityClass priority);
  void Finish(Queue& queue);  // waits for its work
  std::string Read(Queue& queue, const Chunk& chunk);

  std::unique_ptr<process::Spawner> spawner_;  // outlives the device
  std::unique_ptr<Queue> all_, batch_;         // null: one executor
};

// The permissions of the chunk's first page in a process; "" if nothing is there.
std::string PagesAt(pid_t process, const Chunk& chunk);
// Processes that run this program, without this one.
std::vector<pid_t> OtherProcesses();

// Serves as an executor, or runs the tests with devices of `driver`, a library.
int RunDeviceTests(int argc, char** argv, const std::string& driver);

}  // namespace xpud::executor::testing
