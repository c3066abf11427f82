// The process's session with the daemon, its streams and its current devices. The session is created at first
// use. Thread-safe. Never destroyed, because tensors may outlive the interpreter.
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
inline constexpr int kMaxStreams = 64;  // per device; stream 0 is the default stream
inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::PrivateUse1;

class Runtime {
 public:
  // Connects at first use. Throws if no daemon can be reached, if the daemon has no device for this process,
  // and in a child that was forked after the connection.
  static Runtime& Get() {
    Runtime* runtime = instance_.load(std::memory_order_acquire);
    return runtime != nullptr ? *runtime : Connect();
  }
  // Like Get. If the daemon is gone (Session::HasLostDaemon), connects to the next one, and older tensors are
  // lost. Throws if the daemon has closed the session. Costs some nanoseconds more than Get.
  static Runtime& ForNewTensors() {
    Runtime& runtime = Get();
    return runtime.session_ == nullptr || !runtime.session_->HasEnded() ? runtime : Reconnect(runtime);
  }
  // Which connection of this process this is.
  uint32_t number() const { return number_; }
  // The number of the connection in use. A tensor of another one is lost.
  static uint32_t current_number() { return current_number_.load(std::memory_order_relaxed); }
  static bool IsConnected() { return instance_.load(std::memory_order_acquire) != nullptr; }
  static bool IsInBadFork() { return bad_fork_.load(std::memory_order_relaxed); }
  // Returns 0 if no tensor can be made: there is no daemon or device, or the daemon closed the session.
  // Never throws.
  static int DeviceCountOrZero() noexcept;

  int device_count() const { return static_cast<int>(devices_.size()); }
  const DeviceInfo& device(int index) const { return devices_.at(index); }
  Session* session() const { return session_.get(); }  // nullptr on the null device
  // XPUD_NULL_DEVICE=1: every command completes at once without being sent, and reads return zeros. Used to
  // measure the overhead of Python and PyTorch.
  bool is_null() const { return session_ == nullptr; }

  const Queue& queue(int device, c10::StreamId stream) const { return *queues_[device][stream]; }
  // Returns a stream with a new queue, or an existing stream if `device` has kMaxStreams already.
  c10::Stream NewStream(int device, int priority);
  // Returns one of eight shared streams of each priority, round robin.
  c10::Stream PooledStream(int device, bool high_priority);
  void Synchronize(int device);

  // These are thread-local.
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
  // Returns a runtime for the next daemon, in place of `lost`, whose session has ended.
  static Runtime& Reconnect(Runtime& lost);
  // Takes the devices of `session`, and makes the default streams.
  void Take(std::unique_ptr<Session> session);
  // Makes streams like those of `lost`.
  void MakeStreamsOf(Runtime& lost);

  static std::atomic<Runtime*> instance_;
  static std::atomic<uint32_t> current_number_;
  static std::atomic<bool> bad_fork_;
  static std::atomic<bool> no_devices_;  // a connection succeeded, and the daemon had no device

  // Constant after construction.
  std::unique_ptr<Session> session_;
  std::vector<DeviceInfo> devices_;
  uint32_t number_ = 1;

  // A slot is written once, under mutex_, before its stream id is published.
  std::array<std::array<std::unique_ptr<Queue>, kMaxStreams>, kMaxDevices> queues_;
  Mutex mutex_;
  std::array<int, kMaxDevices> streams_ ABSL_GUARDED_BY(mutex_) = OneEach();
  std::array<std::array<int, kMaxStreams>, kMaxDevices> priorities_ ABSL_GUARDED_BY(mutex_) = {};
  std::array<std::array<std::vector<c10::StreamId>, 2>, kMaxDevices> pool_ ABSL_GUARDED_BY(mutex_);
  std::array<std::array<size_t, 2>, kMaxDevices> pool_turn_ ABSL_GUARDED_BY(mutex_) = {};
};

// Calls into the operators that a new session needs. The binding sets them before the first use.
struct SessionHooks {
  void (*check_settings)() = nullptr;  // before connecting: throws for a wrong environment variable
  void (*fall_back_without)(const ops::RowSet& known) = nullptr;  // the daemon knows only these rows
};
void SetSessionHooks(const SessionHooks& hooks);

// Sends one op to the current stream of `device`. Throws if the client refuses it.
void Execute(const OpCall& call, int device);

}  // namespace xpud::shim
