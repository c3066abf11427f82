// One session as the client holds it: the connection, the devices that it uses, and the host memory that
// these share. Shared by the Session, its queues, buffers and events; the last one to go closes it.
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/transport/layout.h"
#include "sdk/client/connect.h"
#include "sdk/client/device_session.h"
#include "sdk/client/host_cache.h"
#include "sdk/client/spin_mutex.h"
#include "xpud/xpud.h"

namespace xpud::client {

class Core : public std::enable_shared_from_this<Core> {
 public:
  // `used_generations`: no buffer has a generation up to this.
  Core(Connection connection, const ConnectOptions& options, uint32_t used_generations = 0);
  ~Core();

  // The devices that this process may see ($XPUD_VISIBLE_DEVICES), in its own numbering.
  const std::vector<DeviceInfo>& devices() const { return devices_; }
  const ops::RowSet& rows() const { return connection_.welcome.rows; }
  const std::string& address() const { return connection_.address; }
  std::string daemon_version() const { return transport::GetText(connection_.welcome.text); }
  bool started_daemon() const { return connection_.started_daemon; }
  const std::function<absl::Status()>& interrupt() const { return interrupt_; }
  bool forked() const;
  // Returns FailedPrecondition in a forked child.
  absl::Status CheckUsable() const;
  // Returns CheckUsable's error, or the reason why the session has ended.
  absl::Status status() const;

  // Returns the session on a visible device, which its first use opens.
  absl::StatusOr<DeviceSession*> Open(uint32_t device) {
    DeviceSession* const opened = IfOpen(device);
    if (opened != nullptr) [[likely]]
      return opened;
    return OpenNow(device);
  }
  // Returns nullptr if nothing used the device yet.
  DeviceSession* IfOpen(uint32_t device) const {
    return device < devices_.size() ? open_[device].load(std::memory_order_acquire) : nullptr;
  }
  // Returns Unavailable for a buffer of the session in whose place this one is.
  absl::Status CheckIsOurs(BufferHandle handle) const {
    if (handle.generation > used_generations_ || handle.generation == 0) [[likely]]
      return absl::OkStatus();
    return LostBuffer();
  }
  // For CheckIsOurs of many.
  bool IsInPlaceOfAnother() const { return used_generations_ != 0; }
  // Has no more buffers, on any device. Returns the highest generation of all that there were.
  uint32_t CloseBuffers();
  // Returns whether the session has ended, as found in the last 20 ms.
  bool HasEnded() const;
  // A call found that it has.
  void NoteEnd() const { has_ended_.store(true, std::memory_order_relaxed); }
  // Returns true once.
  bool MayReport() const { return !reported_.exchange(true); }
  // Waits up to `wait` for all commands. Returns the first error that no call has returned; leaves it.
  absl::Status UnreadError(std::chrono::milliseconds wait) const;
  // The device's number at the daemon.
  uint32_t AtDaemon(uint32_t device) const { return visible_[device]; }
  // Returns the device with that number, or NotFound if this process does not see it.
  absl::StatusOr<uint32_t> FromDaemon(uint32_t at_daemon) const;

  // Host memory that the daemon shares.
  absl::StatusOr<HostCache::Block*> AllocateHost(uint64_t bytes);
  void FreeHost(HostCache::Block* block);
  bool IsHostMemory(const void* address);

  // See Session. REQUIRES: the device is open.
  bool knows_ranges() const {
    constexpr uint16_t kFirstVersion = 7;
    return connection_.welcome.version >= kFirstVersion;
  }
  bool knows_loop_kernels() const {
    constexpr uint16_t kFirstVersion = 9;
    return connection_.welcome.version >= kFirstVersion && ops::Contains(rows(), LoopRow());
  }
  bool prepares_loop_kernels() const {
    constexpr uint16_t kFirstVersion = 10;
    return connection_.welcome.version >= kFirstVersion && knows_loop_kernels();
  }
  bool shares_memory() const {
    constexpr uint16_t kFirstVersion = 11;
    return connection_.welcome.version >= kFirstVersion;
  }
  bool copies_between() const {
    constexpr uint16_t kFirstVersion = 12;
    return connection_.welcome.version >= kFirstVersion;
  }
  static const ops::Row& LoopRow() {
    static const ops::Row& row = ops::RowOf("xpud::loop");
    return row;
  }
  absl::Status StartProfile(uint32_t device, uint64_t commands) const;
  absl::StatusOr<Profile> StopProfile(uint32_t device) const;
  // Returns Unimplemented for a daemon that knows no nice.
  absl::Status SetNice(uint32_t nice) const;
  void Observe(CommandObserver* observer);

  // For DeviceSession: copies from and to host memory.
  bool IsInHost(std::span<const std::byte> bytes);
  // Whether an upload of these bytes is from host memory in place: they are more than `most`, or a command in
  // flight may write them.
  bool UploadsInPlace(std::span<const std::byte> bytes, size_t most);
  // Ensures that the device can use the host memory of these bytes.
  absl::Status ShareHost(std::span<const std::byte> bytes, uint32_t device);
  // Calls `send` with the place of these bytes, while they cannot be freed; it returns the sequence of the
  // command that uses them, or 0. Returns false if they are not in host memory that the device can use.
  // REQUIRES: may be called under the lock of a DeviceSession.
  bool UseHost(std::span<const std::byte> bytes, uint32_t device, uint32_t queue,
               absl::FunctionRef<uint64_t(const HostCache::Place&)> send);

 private:
  static absl::Status LostBuffer();
  // Returns Unimplemented for a daemon that takes no profiles for clients.
  absl::Status CheckProfiles() const;
  absl::StatusOr<DeviceSession*> OpenNow(uint32_t device);
  bool IsComplete(uint32_t device, uint32_t queue, uint64_t sequence) const {
    return open_[device].load(std::memory_order_acquire)->IsComplete(queue, sequence);
  }
  // `sparing`: take no more memory than this block needs.
  absl::StatusOr<HostCache::Block*> TakeHost(uint64_t bytes, bool sparing);
  // Shares one more memory with the devices that are open, or the first visible one.
  absl::Status AddHostMemory(uint64_t bytes);
  // Gives idle memories back until `keep` bytes of them are left. `wait`: until the daemon has them.
  absl::Status TrimHost(uint64_t keep, bool wait);

  // Constant after construction.
  const Connection connection_;
  std::vector<DeviceInfo> devices_;
  std::vector<uint32_t> visible_;  // by visible device: its number at the daemon
  const std::function<absl::Status()> interrupt_;
  const uint32_t fork_epoch_;
  const uint32_t used_generations_;
  mutable std::atomic<bool> has_ended_{false};
  mutable std::atomic<int64_t> next_look_{0};  // HasEnded
  mutable std::atomic<bool> reported_{false};

  Mutex open_mutex_;  // held while a device is opened
  std::array<std::unique_ptr<DeviceSession>, transport::kMaxDevices> sessions_ ABSL_GUARDED_BY(open_mutex_);
  std::array<std::atomic<DeviceSession*>, transport::kMaxDevices> open_{};
  CommandObserver* observer_ ABSL_GUARDED_BY(open_mutex_) = nullptr;

  std::atomic<bool> has_host_{false};  // there is or was host memory
  std::atomic<uint32_t> next_memory_{1};
  Mutex share_mutex_;     // held while memory is shared with devices
  SpinMutex host_mutex_;  // locked after the lock of a DeviceSession
  HostCache host_ ABSL_GUARDED_BY(host_mutex_);
};

}  // namespace xpud::client
