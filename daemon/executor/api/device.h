// A device as the daemon uses it: memory in chunks, and queues. There are two kinds: level_zero_device.h
// calls Level Zero in this process, and process/process_device.h has an executor process of its own.
// REQUIRES: the lane's thread, unless a function says otherwise.
#pragma once

#include <algorithm>
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
#include "daemon/executor/api/executor_kind.h"
#include "daemon/executor/api/peak_rates.h"
#include "daemon/executor/api/sensors.h"
#include "daemon/tenant/time_grant.h"
#include "kernels/api/kernel_store.h"
#include "proto/base/check.h"
#include "proto/base/pci_address.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/transport.h"

namespace xpud::executor {

struct DeviceProperties {
  std::string name;
  std::string kind;    // "cpu", "gpu"
  std::string vendor;  // name of the driver's back end
  uint64_t total_memory = 0;
  uint32_t compute_units = 0;
  PciAddress pci_address;
  PeakRates peak;
  std::string processor;  // the driver's name for the target of native modules: "sm_90"
  // Whether work is done when the call that appends it returns (true for the CPU device in this process).
  bool synchronous = false;
  // Whether a lost executor is replaced and its unfinished work is run again.
  bool replaceable = false;
  kernels::Target target = kernels::Target::kHost;
  bool has_doubles = true;  // else kernels compute them with integers
  kernels::GroupLimits most_groups = kernels::kAnyGroups;
  // Bit d: MapPeer takes memory of device d of this daemon. Set when all devices are open.
  uint64_t peers = 0;
};

// Device memory that is exported as an fd, so that it can outlive the process that uses it. It may be away:
// see Mover. Then only its addresses are kept.
class Chunk {
 public:
  virtual ~Chunk() { XPUD_CHECK(!moves_); }  // REQUIRES: no move of it is under way
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  std::byte* address() const { return address_; }  // in the device's address space
  uint64_t bytes() const { return bytes_; }

 protected:
  Chunk(std::byte* address, uint64_t bytes) : address_(address), bytes_(bytes) {}

 private:
  friend class ChunkMover;
  std::byte* address_;
  uint64_t bytes_;
  bool moves_ = false;
};

// Memory of the daemon that the device reads and writes in place.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  std::byte* address() const { return address_; }
  // Returns the device's address for `address` of this process.
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
class Mover;

// The owner of queues in which the daemon itself works.
constexpr uint64_t kDaemon = 0;

// A session that must be closed because its work took the device down; kDaemon: that work is lost. Its queues
// that are lost say so (DeviceQueue::is_lost).
struct Verdict {
  uint64_t owner = 0;
  std::string reason;
};

struct ExecutorStatus {
  int pid = 0;            // 0: this process, or there is none
  uint64_t lost = 0;      // count of lost executors
  uint64_t replaced = 0;  // count of those that were replaced
};

class Device {
 public:
  virtual ~Device() = default;

  const DeviceProperties& properties() const { return properties_; }  // thread-safe
  // Tests: it says to have at most so many bytes. REQUIRES: nothing has used it.
  void LimitMemory(uint64_t most) { properties_.total_memory = std::min(properties_.total_memory, most); }
  // Its memory is zero.
  virtual absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes) = 0;
  // Reserves addresses for a chunk, which is away: the device has no memory for it yet. Unimplemented if
  // mover() is null.
  virtual absl::StatusOr<std::unique_ptr<Chunk>> ReserveChunk(uint64_t /*bytes*/) {
    return absl::UnimplementedError("the device's memory cannot leave it");
  }
  // For copies between devices. REQUIRES: `properties().peers` of the one that maps it has the other.
  // Returns an fd of the memory of a chunk, which is there.
  virtual absl::StatusOr<UniqueFd> ExportMemory(const Chunk& /*chunk*/) {
    return absl::UnimplementedError("other devices cannot map the device's memory");
  }
  // Maps memory that another device has exported: copies may read it until the result ends. Takes as long as
  // AllocateChunk, and returns Unavailable when that does.
  virtual absl::StatusOr<std::unique_ptr<Chunk>> MapPeer(const UniqueFd& /*memory*/, uint64_t /*bytes*/) {
    return absl::UnimplementedError("the device cannot map the memory of others");
  }
  void SetPeers(uint64_t devices) { properties_.peers = devices; }
  // Moves chunks; null: the device's memory cannot leave it. Constant.
  virtual Mover* mover() { return nullptr; }
  // Allocates zeroed memory.
  virtual absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes) = 0;
  // Gives the device access to memory of this process, in whole pages. REQUIRES: the memory outlives the
  // result.
  virtual absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory) = 0;
  // Like Import, without blocking: a driver may take 0.3 s per GiB. Calls `done` once, from here or from
  // Poll, unless the device is destroyed first. `owner` is the session that shares the memory.
  using ImportDone = std::function<void(absl::StatusOr<std::unique_ptr<HostMemory>>)>;
  virtual void StartImport(const transport::SharedBytes& memory, uint64_t owner, ImportDone done) = 0;
  // `owner` is the session that is charged for the queue's work, or kDaemon; of a device that has priorities,
  // the queue gets that of the session's class.
  virtual absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(PriorityClass priority,
                                                                   uint64_t owner) = 0;
  // Compiles a module's text to the driver's machine code, which is kept on disk. Thread-safe.
  virtual absl::StatusOr<std::string> Assemble(const std::string& text) = 0;

  // Runs a HOST kernel outside any queue; see kernels::KernelLibrary::Options::run_host_kernel. Thread-safe.
  virtual absl::StatusOr<uint64_t> RunHostKernel(const kernels::Launch& launch) = 0;

  // Unloads kernels that will not be launched again, and removes them from the list. Kernels that work in
  // flight needs stay in the list.
  virtual void Forget(std::vector<const kernels::Kernel*>& kernels) = 0;

  // Called by one thread at a time, any thread. Takes up to 0.2 s if another process has the device.
  virtual SensorReadings ReadSensors() { return NoReadings(SensorState::kNotOffered); }

  // Checks the executor and finishes imports; call often. Returns the sessions to close.
  virtual std::vector<Verdict> Poll() { return {}; }
  // Becomes readable when Poll must be called though nothing else happens; -1: never. Constant.
  virtual int alarm_fd() const { return -1; }
  virtual ExecutorStatus executor(ExecutorRole /*role*/) const { return {}; }
  // Device memory that an executor will take if it is opened later.
  virtual uint64_t unopened_bytes() const { return 0; }
  // Why its last executor was lost.
  virtual std::string loss(ExecutorRole /*role*/) const { return ""; }
  // Sets how long a command may run from now on, where that is watched; 0: no limit.
  virtual void SetCommandLimit(std::chrono::milliseconds /*limit*/) {}
  // From now on queues say when their work ran, or no longer do. Returns a ticket: once Traced(ticket), and
  // after the next Poll, they have said it of all work that has ended.
  virtual uint32_t Trace(bool /*on*/) { return 0; }
  virtual bool Traced(uint32_t /*ticket*/) const { return true; }
  // Count of launches that this executor appended as part of a recording.
  virtual uint64_t replayed_launches() const { return 0; }

 protected:
  DeviceProperties properties_;
};

}  // namespace xpud::executor
