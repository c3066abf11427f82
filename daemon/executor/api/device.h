// A device as the daemon uses it: memory in chunks, queues, and whoever carries the work out. Two kinds: one
// that calls Level Zero in this process (level_zero_device.h) and one whose executor is a process of its own
// (process/process_device.h). The engine thread only, except where said.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/sensors.h"
#include "kernels/api/kernel_store.h"
#include "proto/transport/transport.h"

namespace xpud::executor {

struct DeviceProperties {
  std::string name;
  std::string kind;    // "cpu", "gpu"
  std::string vendor;  // the driver behind the device, by its back end's name
  uint64_t total_memory = 0;
  uint32_t compute_units = 0;
  std::string processor;  // as the driver names what native modules are for: "sm_90"
  // Whether work is done when the call that appended it returns (the CPU device in this process).
  bool synchronous = false;
  // Whether a lost executor is replaced and its unfinished work sent again.
  bool replaceable = false;
  kernels::Target target = kernels::Target::kHost;
};

// Device memory whose life is its own: exported as an fd, so that it can outlive the process that uses it.
class Chunk {
 public:
  virtual ~Chunk() = default;
  std::byte* address() const { return address_; }  // the device's
  uint64_t bytes() const { return bytes_; }

 protected:
  Chunk(std::byte* address, uint64_t bytes) : address_(address), bytes_(bytes) {}

 private:
  std::byte* address_;
  uint64_t bytes_;
};

// Memory of the daemon that the device reads and writes in place.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  std::byte* address() const { return address_; }
  // Where the device finds what is at `address` here.
  template <typename T>
  T* OnDevice(T* address) const {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) + offset_);
  }

 protected:
  HostMemory(std::byte* address, const std::byte* device_address)
      : address_(address),
        offset_(reinterpret_cast<uintptr_t>(device_address) - reinterpret_cast<uintptr_t>(address)) {}

 private:
  std::byte* address_;
  uintptr_t offset_;
};

class DeviceQueue;

// Sessions whose work took the device down are to be closed.
struct Verdict {
  uint64_t owner = 0;
  std::string reason;
};

struct ExecutorStatus {
  int pid = 0;            // 0: this process
  uint64_t replaced = 0;  // how often a lost one was replaced
};

class Device {
 public:
  virtual ~Device() = default;

  const DeviceProperties& properties() const { return properties_; }  // any thread
  virtual absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes) = 0;
  // Zeros.
  virtual absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes) = 0;
  // Gives the device access to memory of this process, in whole pages, which outlives what is returned.
  virtual absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory) = 0;
  // As Import, but apart from the engine, which goes on meanwhile: a driver may take 0.3 s a GiB. `done` is
  // called once, by this or by Poll, unless the device goes first. `owner`: the
  // session that shares it.
  using ImportDone = std::function<void(absl::StatusOr<std::unique_ptr<HostMemory>>)>;
  virtual void StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) = 0;
  // `owner`: the session that is charged with what the queue does.
  virtual absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(int priority, uint64_t owner) = 0;
  // The driver's machine code for a module's text, to be kept on disk. Any thread.
  virtual absl::StatusOr<std::string> Assemble(const std::string& text) = 0;

  // Runs a HOST kernel apart from any queue: see kernels::KernelLibrary::Options::ask. Any thread.
  virtual absl::StatusOr<uint64_t> Ask(const kernels::Launch& launch) = 0;

  // Gives up what it has of kernels that no more work will name, and takes them out of the list; those that
  // work under way needs stay there.
  virtual void Forget(std::vector<const kernels::Kernel*>& kernels) = 0;

  // Any thread, one at a time; takes up to 0.2 s where
  // another process has the device.
  virtual SensorReadings ReadSensors() { return NoReadings(SensorState::kNotOffered); }

  // Looks after the executor and finishes imports; call often. Returns the sessions to close.
  virtual std::vector<Verdict> Poll() { return {}; }
  // Readable when Poll should be called though nothing else happens; -1: never. Another one after each
  // replacement.
  virtual int alarm_fd() const { return -1; }
  virtual ExecutorStatus executor() const { return {}; }
  // Why the last one was lost.
  virtual std::string loss() const { return ""; }
  // How long a command may run from now on, where that is watched; 0: any time.
  virtual void SetCommandLimit(std::chrono::milliseconds /*limit*/) {}
  // Launches that this executor appended as part of a recording.
  virtual uint64_t replayed_launches() const { return 0; }

 protected:
  DeviceProperties properties_;
};

}  // namespace xpud::executor
