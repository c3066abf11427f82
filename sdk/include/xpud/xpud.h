// xpud's public C++ API: a session with the daemon, and in it devices, queues, events, tensors and ops.
//
// clang-format off
//   auto session = xpud::Session::Connect({});  // finds the daemon, or starts a private one
//   auto queue = (*session)->DefaultQueue(0);
//   auto a = xpud::Tensor::FromHost(queue, values, {2, 3});
//   auto b = xpud::ops::Mul(*a, 2.0);
//   std::vector<float> out(6);
//   absl::Status status = b->ToHost(std::as_writable_bytes(std::span(out)));
// clang-format on
//
// Everything is asynchronous except reading a value and Synchronize; an error of an earlier op surfaces
// there. All calls may come from any thread. After fork, a child must make a session of its own: calls on the
// parent's fail with FailedPrecondition, and dropping its objects does nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "xpud/op_call.h"

namespace xpud {

namespace client {
class Core;  // the connection: ring, staging, completion page
}

// A device as the daemon describes it.
struct DeviceInfo {
  std::string name;           // as Level Zero names it
  std::string kind;           // "cpu", "gpu"
  std::string vendor;         // the driver: "cpu", "cuda", "intel"
  uint64_t total_memory = 0;  // bytes
  uint32_t compute_units = 0;
};

struct ConnectOptions {
  // A unix socket's path, or HOST:PORT of an xpud-gateway. Empty: $XPUD_ADDRESS, the system's daemon, the
  // user's daemon; when none answers, one is started.
  std::string address;
  bool start_daemon = true;
  // Shown by xpuctl; at most 63 bytes. Empty: the program's name. $XPUD_CLIENT_NAME overrides it.
  std::string client_name;
  std::chrono::milliseconds timeout{10000};  // for the daemon to answer, and for it to start
  // To a daemon on another machine: where the connection is lost, try so long to come back to the same
  // session, which its gateway holds (30 s, unless told otherwise); calls wait meanwhile. 0: a lost
  // connection ends the session. $XPUD_RECONNECT_SECONDS overrides it.
  std::chrono::seconds reconnect{0};
  // Called (from any waiting thread, about every 50 ms) while a call waits; a non-OK status ends the wait and
  // is returned.
  std::function<absl::Status()> interrupt;
};

class Session;
class Queue;

// Device memory with one owner, which frees it in stream order when it goes. It keeps its session's
// connection open. Default-constructed or moved from: none. Thread-compatible.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { Free(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    if (this == &other) return *this;
    Free();
    core_ = std::exchange(other.core_, nullptr);
    handle_ = std::exchange(other.handle_, {});
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
    return *this;
  }
  void Free();  // now, not at the end of its life

  BufferHandle handle() const { return handle_; }
  uint64_t bytes() const { return bytes_; }
  uint32_t device() const { return device_; }

 private:
  friend class Queue;
  Buffer(client::Core* core, uint32_t device, BufferHandle handle, uint64_t bytes)
      : core_(core), handle_(handle), bytes_(bytes), device_(device) {}
  client::Core* core_ = nullptr;  // counts its buffers and lives until the last one is freed
  BufferHandle handle_;
  uint64_t bytes_ = 0;
  uint32_t device_ = 0;
};

// Host memory that the daemon and all visible devices share: copies from and to it go straight between it and
// the device, where others go through staging. Freed at the end of its life, and reused once the commands
// that use it have completed. It is ordinary memory to this process, which starts on a page; a forked child
// does not have it. It keeps its session's connection open. Default-constructed or moved from: none.
// Thread-compatible.
class HostBuffer {
 public:
  HostBuffer() = default;
  ~HostBuffer() { Free(); }
  HostBuffer(HostBuffer&& other) noexcept { *this = std::move(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    if (this == &other) return *this;
    Free();
    core_ = std::move(other.core_);
    block_ = std::exchange(other.block_, nullptr);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }
  void Free();  // now, not at the end of its life

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class Session;
  std::shared_ptr<client::Core> core_;
  void* block_ = nullptr;
  std::span<std::byte> bytes_;
};

// What a session holds of one device's memory, in bytes as asked for, and what it did so far.
struct MemoryStats {
  uint64_t buffers = 0;
  uint64_t allocated_bytes = 0;
  uint64_t peak_allocated_bytes = 0;  // since the last ResetPeakMemory
  // Since the session began or the last ResetAccumulatedMemory.
  uint64_t allocations = 0, frees = 0;
  uint64_t total_allocated_bytes = 0, total_freed_bytes = 0;
};

// A point in a queue. Default-constructed: recorded nowhere, already complete.
class Event {
 public:
  Event() = default;
  bool Query() const;                // complete?
  absl::Status Synchronize() const;  // waits; returns the queue's error, if any
  // Nanoseconds of device time from `earlier` to this event; both must be complete and made with timing.
  absl::StatusOr<int64_t> ElapsedNanoseconds(const Event& earlier) const;

 private:
  friend class Queue;
  std::shared_ptr<client::Core> core_;
  uint32_t device_ = 0, queue_ = 0;
  uint64_t sequence_ = 0;                      // of the last command before it
  std::shared_ptr<const uint32_t> timestamp_;  // slot in the completion page; null without timing
};

// An in-order stream of commands on one device. A small value; copies name the same queue.
class Queue {
 public:
  Queue() = default;
  uint32_t device() const { return device_; }
  uint32_t id() const { return id_; }
  client::Core& core() const { return *core_; }
  const std::shared_ptr<client::Core>& shared_core() const { return core_; }

  // Allocates `bytes` (0 allowed) in stream order. ResourceExhausted when the session's limit leaves no room.
  absl::StatusOr<Buffer> Allocate(uint64_t bytes) const;
  // Sends one op. Checks what the wire can carry (ranks, counts) and whether the daemon knows the op; the
  // daemon checks the rest, and errors surface at the next sync.
  absl::Status Execute(const OpCall& call) const;
  // Copies host bytes into a buffer; `source` may be reused on return. From a HostBuffer it waits for the
  // copy.
  absl::Status Upload(std::span<const std::byte> source, BufferHandle target, uint64_t offset) const;
  // Copies from a buffer to host memory and waits. Raises what went wrong before, delivering nothing then.
  absl::Status Download(BufferHandle source, uint64_t offset, std::span<std::byte> target) const;
  // As Upload and Download, and back at once where the host bytes lie in one HostBuffer of this session: they
  // are not to be touched until an event that is recorded afterwards (or a Synchronize) was reached; freeing
  // them is allowed. An error surfaces at the next sync; a download's target then holds anything.
  absl::Status StartUpload(std::span<const std::byte> source, BufferHandle target, uint64_t offset) const;
  absl::Status StartDownload(BufferHandle source, uint64_t offset, std::span<std::byte> target) const;
  // Device-to-device bytes, between buffers of one device.
  absl::Status Copy(BufferHandle source, uint64_t source_offset, BufferHandle target, uint64_t target_offset,
                    uint64_t bytes) const;

  absl::StatusOr<Event> Record(bool timing = false) const;
  absl::Status Wait(const Event& event) const;  // later commands wait for the event
  bool Query() const;                           // all done?
  absl::Status Synchronize() const;             // waits; returns and clears the queue's error

 private:
  friend class Session;
  Queue(std::shared_ptr<client::Core> core, uint32_t device, uint32_t id)
      : core_(std::move(core)), device_(device), id_(id) {}
  std::shared_ptr<client::Core> core_;
  uint32_t device_ = 0;
  uint32_t id_ = 0;
};

// One process's connection to a daemon.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Connect(const ConnectOptions& options);
  ~Session();

  const std::vector<DeviceInfo>& devices() const;  // those that $XPUD_VISIBLE_DEVICES shows: perhaps none
  // The ops that the daemon knows. Execute refuses others with Unimplemented, and the session goes on.
  const ops::RowSet& rows() const;
  // `device` < devices().size(), or the process aborts.
  Queue DefaultQueue(uint32_t device) const;
  // A further queue; priority: lower runs first, 0 normal, -1 high.
  absl::StatusOr<Queue> CreateQueue(uint32_t device, int priority = 0);
  absl::Status DestroyQueue(const Queue& queue);
  // Host memory of `bytes` (0 allowed), with any contents. The first of its size takes as long as allocating
  // it and giving it to the devices (some 0.3 s a GiB on GPUs); freed ones are kept for the next.
  // ResourceExhausted: beyond what the daemon allows a session, or the machine has none. Unimplemented: this
  // daemon shares none. Ordinary memory serves then.
  absl::StatusOr<HostBuffer> AllocateHost(uint64_t bytes);
  // Whether the address lies in a HostBuffer of this session.
  bool IsHostMemory(const void* address) const;
  // Waits for every queue of one device.
  absl::Status Synchronize(uint32_t device);
  MemoryStats Memory(uint32_t device) const;
  void ResetPeakMemory(uint32_t device);
  void ResetAccumulatedMemory(uint32_t device);
  // False in a forked child, after the daemon closed the session, or after it died; `status` says which.
  absl::Status status() const;
  const std::string& address() const;  // socket path
  bool started_daemon() const;         // this call started a private daemon
  client::Core& core() const { return *core_; }
  const std::shared_ptr<client::Core>& shared_core() const { return core_; }

 private:
  explicit Session(std::shared_ptr<client::Core> core) : core_(std::move(core)) {}
  std::shared_ptr<client::Core> core_;
};

}  // namespace xpud
