// The host memory that one session shares with the daemon (proto/transport/host_memory.h), and a device's
// access to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "proto/base/mutex.h"
#include "proto/transport/host_memory.h"

namespace xpud::handles {

// All memories of a session. Thread-safe.
class HostMemories {
 public:
  // A memory. Any device that uses it holds a share; it ends with the last one.
  class Memory {
   public:
    Memory(uint32_t id, transport::ClientMemory client, std::shared_ptr<HostMemories> owner);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    transport::SharedBytes bytes() const { return client_.memory(); }

   private:
    const uint32_t id_;
    const transport::ClientMemory client_;
    const std::shared_ptr<HostMemories> owner_;
  };

  // `limit`: bytes in all. `for_executors`: as in ClientMemory::Seal; whether any device of the daemon is in
  // an executor process.
  HostMemories(uint64_t limit, bool for_executors) : limit_(limit), for_executors_(for_executors) {}

  // Returns the memory that has this id. If there is none, checks, seals and adds `fd`. Returns
  // ResourceExhausted beyond the limits, or InvalidArgument. `self` owns this object.
  static absl::StatusOr<std::shared_ptr<const Memory>> Add(const std::shared_ptr<HostMemories>& self,
                                                           uint32_t id, UniqueFd fd, uint64_t bytes);
  // Bytes that are shared, including those that were released and are still in use.
  uint64_t bytes() const;

 private:
  absl::Status CheckLimit(uint64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint64_t limit_;
  const bool for_executors_;
  mutable Mutex mutex_;
  uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<uint32_t, std::weak_ptr<const Memory>> memories_ ABSL_GUARDED_BY(mutex_);
};

// One device's access to a session's host memories. REQUIRES: the lane's thread.
class DeviceHostMemories {
 public:
  class Access {
   public:
    uint64_t bytes() const { return memory_->bytes().bytes.size(); }
    // The device's address of its first byte.
    std::byte* on_device() const { return device_->OnDevice(memory_->bytes().bytes.data()); }

    uint64_t queues = 0;  // bit q: queue q used it

   private:
    friend class DeviceHostMemories;
    std::shared_ptr<const HostMemories::Memory> memory_;
    std::unique_ptr<executor::HostMemory> device_;  // null until the device has it
  };
  using Done = std::function<void(const absl::Status&)>;

  DeviceHostMemories(executor::Device& device, uint64_t session) : device_(device), session_(session) {}

  // Gives the device access. Calls `done` once, when the device has it or cannot get it, unless the session
  // ends first. Returns InvalidArgument, a breach of protocol, if the device has a memory with this id.
  absl::Status Share(uint32_t id, const std::shared_ptr<const HostMemories::Memory>& memory,
                     const Done& done);
  // Returns nullptr for ids that are not shared (yet).
  Access* Find(uint32_t id) const;
  // Takes it out of the table; the access ends with the pointer. Returns nullptr as Find.
  std::shared_ptr<Access> Release(uint32_t id);

 private:
  executor::Device& device_;
  const uint64_t session_;
  absl::flat_hash_map<uint32_t, std::shared_ptr<Access>> accesses_;
};

}  // namespace xpud::handles
