// The process's one session with the daemon, made at first use, and the streams and current devices on top of
// it. Any thread may call. Never destructed: tensors may outlive the interpreter's shutdown.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/mutex.h"
#include "xpud/xpud.h"

namespace xpud::shim {

inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxStreams = 64;  // of one device; stream 0 is the default one
inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

class Runtime {
 public:
  // Connects at first use. Throws when no daemon can be reached, when it has no device for this process, and
  // in the forked child of a process that had connected.
  static Runtime& Get() {
    Runtime* runtime = instance_.load(std::memory_order_acquire);
    return runtime != nullptr ? *runtime : Connect();
  }
  static bool IsConnected() { return instance_.load(std::memory_order_acquire) != nullptr; }
  static bool IsInBadFork() { return bad_fork_.load(std::memory_order_relaxed); }
  // 0 when there is no daemon or device; never throws.
  static int DeviceCountOrZero() noexcept;

  int device_count() const { return static_cast<int>(devices_.size()); }
  const DeviceInfo& device(int index) const { return devices_.at(index); }
  Session* session() const { return session_.get(); }  // nullptr: the null device
  // XPUD_NULL_DEVICE=1: every command completes at once and is not sent, reads give zeros. Measures the
  // Python floor.
  bool is_null() const { return session_ == nullptr; }

  const Queue& queue(int device, c10::StreamId stream) const { return *queues_[device][stream]; }
  // A new queue, or one made earlier when kMaxStreams are in use.
  c10::Stream NewStream(int device, int priority);
  // One of eight shared streams a priority, in turn.
  c10::Stream PooledStream(int device, bool high_priority);
  void Synchronize(int device);

  // Thread-local state.
  static int CurrentDevice();
  static void SetCurrentDevice(int device);
  static c10::StreamId CurrentStream(int device);
  static void SetCurrentStream(int device, c10::StreamId stream);
  const Queue& current_queue(int device) const { return queue(device, CurrentStream(device)); }

 private:
  Runtime() = default;
  static constexpr std::array<int, kMaxDevices> OneEach() {
    std::array<int, kMaxDevices> ones{};
    ones.fill(1);
    return ones;
  }
  static Runtime& Connect();

  static std::atomic<Runtime*> instance_;
  static std::atomic<bool> bad_fork_;
  static std::atomic<bool> no_devices_;  // connected once, and saw none

  // Constant after construction.
  std::unique_ptr<Session> session_;
  std::vector<DeviceInfo> devices_;

  // A slot is written once, under mutex_, before its stream id is known to anybody.
  std::array<std::array<std::unique_ptr<Queue>, kMaxStreams>, kMaxDevices> queues_;
  Mutex mutex_;
  std::array<int, kMaxDevices> streams_ ABSL_GUARDED_BY(mutex_) = OneEach();
  std::array<std::array<std::vector<c10::StreamId>, 2>, kMaxDevices> pool_ ABSL_GUARDED_BY(mutex_);
  std::array<std::array<size_t, 2>, kMaxDevices> pool_turn_ ABSL_GUARDED_BY(mutex_) = {};
};

// Sends one op to the current stream of `device`; throws what the client refuses.
void Execute(const OpCall& call, int device);

}  // namespace xpud::shim
