// The host memory that one session shares with the daemon (proto/transport/host_memory.h), and the devices'
// access to it. The engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "daemon/session/device_state.h"
#include "proto/transport/host_memory.h"
#include "proto/transport/layout.h"

namespace xpud::session {

class HostMemories {
 public:
  // What the session holds, with what was released and is still in use.
  struct Total {
    uint64_t bytes = 0;
    size_t count = 0;
  };
  class Memory {
   public:
    Memory(transport::ClientMemory client, std::shared_ptr<Total> total);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    uint64_t bytes() const { return client_->memory().bytes.size(); }
    // Where the device finds it; null where it was not shared with that device.
    std::byte* OnDevice(uint32_t device) const;

    uint64_t queues = 0;  // bit q: queue q used it

   private:
    friend class HostMemories;
    const std::shared_ptr<const transport::ClientMemory> client_;  // devices hold on to it while they take it
    const std::shared_ptr<Total> total_;
    std::array<std::unique_ptr<executor::HostMemory>, transport::kMaxDevices> access_;
    int awaited_ = 0;  // devices that do not have it yet
    absl::Status failure_;
  };
  using Done = std::function<void(const absl::Status&)>;

  // `limit`: bytes in all.
  HostMemories(uint64_t session, std::span<DeviceState> devices, uint64_t limit)
      : session_(session), devices_(devices), limit_(limit) {}

  // Gives memory to the devices in the mask; `done` is called once, when they have it or will not get it,
  // unless the session ends first. An error is a breach of protocol.
  absl::Status Share(uint32_t id, uint64_t devices, transport::ClientMemory memory, const Done& done);
  // Null for ids that are not shared, or not yet.
  Memory* Find(uint32_t id) const;
  // Out of the table; gone with the pointer.
  std::shared_ptr<Memory> Release(uint32_t id);
  const Total& total() const { return *total_; }

 private:
  absl::Status CheckLimit(uint64_t bytes) const;
  bool HaveExecutors(uint64_t devices) const;  // any of the mask
  void GiveTo(uint32_t device, uint32_t id, const std::shared_ptr<Memory>& memory, const Done& done);

  const uint64_t session_;
  const std::span<DeviceState> devices_;
  const uint64_t limit_;
  const std::shared_ptr<Total> total_ = std::make_shared<Total>();
  absl::flat_hash_map<uint32_t, std::shared_ptr<Memory>> memories_;
};

}  // namespace xpud::session
