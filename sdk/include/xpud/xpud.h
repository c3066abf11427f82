// xpud's public C++ API: sessions with a daemon, and their devices, queues, events and buffers. tensor.h adds
// tensors and the common ops.
//
// clang-format off
//   auto session = xpud::Session::Connect({});  // finds the daemon, or starts a private one
//   auto queue = (*session)->DefaultQueue(0);
//   auto a = xpud::Tensor::FromHost(queue, values, {2, 3});
//   auto b = xpud::Mul(*a, 2.0);
//   std::vector<float> out(6);
//   absl::Status status = b->ToHost(std::as_writable_bytes(std::span(out)));
// clang-format on
//
// Everything is asynchronous, except Synchronize and reading values, which also return the errors of earlier
// ops. Session, Queue and Event are thread-safe. A forked child must open its own session: calls on the
// parent's fail with FailedPrecondition, and destroying the parent's objects does nothing.
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
#include "xpud/profile.h"

namespace xpud {

namespace client {
class Core;  // the connection: ring, staging, completion page
}

// A device, as described by the daemon.
struct DeviceInfo {
  std::string name;           // the name that Level Zero reports
  std::string kind;           // "cpu" or "gpu"
  std::string vendor;         // the driver: "cpu", "cuda", "intel"
  uint64_t total_memory = 0;  // bytes
  uint32_t compute_units = 0;
  std::string pci_address = {};  // "0000:17:00.0"; empty: not on PCI, or not known
};

struct ConnectOptions {
  // A unix socket's path, or HOST:PORT of an xpud-gateway. If empty: $XPUD_ADDRESS; where /run/xpud exists,
  // the system's daemon; otherwise the user's private daemon, which is started if it does not answer.
  std::string address;
  bool start_daemon = true;
  // Shown by xpuctl; at most 63 bytes. If empty, the program's name. $XPUD_CLIENT_NAME overrides it.
  std::string client_name;
  std::chrono::milliseconds timeout{10000};  // for the daemon to start and to answer
  // For a daemon on another machine: how long to try to resume the session after the connection was lost.
  // Calls wait meanwhile. The gateway keeps the session for 30 s by default. 0: a lost connection ends the
  // session. $XPUD_RECONNECT_SECONDS overrides it.
  std::chrono::seconds reconnect{0};
  // Called about every 50 ms by each waiting thread. A status other than OK ends the wait, which returns it.
  std::function<absl::Status()> interrupt;
};

class Session;
class Queue;

// Owns device memory and frees it in stream order. Keeps its session's connection open. Empty if
// default-constructed or moved from. Thread-compatible.
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
  void Free();  // frees now; the destructor then does nothing

  BufferHandle handle() const { return handle_; }
  uint64_t bytes() const { return bytes_; }
  uint32_t device() const { return device_; }

 private:
  friend class Queue;
  friend class Session;
  Buffer(client::Core* core, uint32_t device, BufferHandle handle, uint64_t bytes)
      : core_(core), handle_(handle), bytes_(bytes), device_(device) {}
  client::Core* core_ = nullptr;  // counts its buffers and lives until the last one is freed
  BufferHandle handle_;
  uint64_t bytes_ = 0;
  uint32_t device_ = 0;
};

// Host memory that the daemon and all visible devices share. Copies from and to it need no staging. Starts on
// a page. Freed memory is reused once the commands that use it have completed. A forked child does not have
// this memory. Keeps its session's connection open. Empty if default-constructed or moved from.
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
  void Free();  // frees now; the destructor then does nothing

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class Queue;
  friend class Session;
  static absl::StatusOr<HostBuffer> Allocate(const std::shared_ptr<client::Core>& core, uint64_t bytes);
  std::shared_ptr<client::Core> core_;
  void* block_ = nullptr;
  std::span<std::byte> bytes_;
};

// Names memory on a device to another process of the same user or claim: see Session::Share. A value, which
// may travel in any way. Whoever has it can take the memory.
struct Ticket {
  std::array<uint64_t, 2> key{};  // random
  uint64_t memory = 0;            // the same for all tickets of the same memory; random
  uint64_t bytes = 0;
  uint32_t device = 0;  // as the daemon numbers the devices that the user has
  bool operator==(const Ticket&) const = default;
};

// A loop kernel (proto/loops: a fused kernel that the client describes as data) that the daemon keeps for one
// device of a session. Queue::Execute calls it: row `xpud::loop`, attribute `kernel` its id, from any queue
// of the device. The daemon forgets it in stream order. Keeps its session's connection open. Empty if
// default-constructed or moved from. Thread-compatible.
class LoopKernel {
 public:
  LoopKernel() = default;
  ~LoopKernel() { Forget(); }
  LoopKernel(LoopKernel&& other) noexcept { *this = std::move(other); }
  LoopKernel& operator=(LoopKernel&& other) noexcept {
    if (this == &other) return *this;
    Forget();
    core_ = std::move(other.core_);
    device_ = other.device_;
    id_ = std::exchange(other.id_, 0);
    return *this;
  }
  void Forget();  // forgets now; the destructor then does nothing

  uint32_t id() const { return id_; }  // 0: empty
  uint32_t device() const { return device_; }

 private:
  friend class Queue;
  LoopKernel(std::shared_ptr<client::Core> core, uint32_t device, uint32_t id)
      : core_(std::move(core)), device_(device), id_(id) {}
  std::shared_ptr<client::Core> core_;
  uint32_t device_ = 0;
  uint32_t id_ = 0;
};

// The memory of a session on one device, counted in requested bytes.
struct MemoryStats {
  uint64_t buffers = 0;
  uint64_t allocated_bytes = 0;
  uint64_t peak_allocated_bytes = 0;  // since the last ResetPeakMemory
  // Since the session began, or since the last ResetAccumulatedMemory.
  uint64_t allocations = 0, frees = 0;
  uint64_t total_allocated_bytes = 0, total_freed_bytes = 0;
};

// A point in a queue. A default-constructed event is complete.
class Event {
 public:
  Event() = default;
  // Returns whether it is complete, or the error of its queue, if it is complete and there is one, or why the
  // session has ended.
  absl::StatusOr<bool> Query() const;
  absl::Status Synchronize() const;  // waits; returns the queue's error, if any
  // Returns the nanoseconds of device time from `earlier` to this event. REQUIRES: both are complete and were
  // recorded with timing.
  absl::StatusOr<int64_t> ElapsedNanoseconds(const Event& earlier) const;

 private:
  friend class Queue;
  std::shared_ptr<client::Core> core_;
  uint32_t device_ = 0, queue_ = 0;
  uint32_t errors_ = 0;                        // of the queue that were taken before it was recorded
  uint64_t sequence_ = 0;                      // of the last command before it
  std::shared_ptr<const uint32_t> timestamp_;  // slot in the completion page; null without timing
};

// An in-order stream of commands on one device. A small value: copies denote the same queue.
class Queue {
 public:
  Queue() = default;
  uint32_t device() const { return device_; }
  uint32_t id() const { return id_; }
  client::Core& core() const { return *core_; }
  const std::shared_ptr<client::Core>& shared_core() const { return core_; }

  // Allocates `bytes` (0 is allowed) in stream order. Returns ResourceExhausted if the session's limit leaves
  // no room.
  absl::StatusOr<Buffer> Allocate(uint64_t bytes) const;
  // Sends one op. Checks only that the wire can carry it (ranks, counts) and that the daemon knows the op.
  // The daemon checks the rest; its errors are returned at the next synchronisation.
  absl::Status Execute(const OpCall& call) const;
  // Defines a loop kernel, `bytes` as proto/loops/codec.h writes it. `name`: for errors and profiles; its
  // first 120 bytes. The daemon checks the kernel: an error is returned at the next synchronisation, and
  // calls of the kernel fail with it. Errors of this call: Unimplemented if the daemon knows no loop kernels
  // (see Session::KnowsLoopKernels), InvalidArgument for more bytes than a command can carry,
  // ResourceExhausted if the session has 4,096 loop kernels on the device.
  absl::StatusOr<LoopKernel> DefineKernel(std::span<const std::byte> bytes, std::string_view name) const;
  // Has the daemon compile the kernel for a call that will follow, ahead of it. `sizes`: of that call;
  // `elements`: of each operand in the kernel's order, 0 to 2^56 (scalars: 1). A hint: any call is allowed
  // afterwards, and a daemon that is older than protocol version 10, or has much to compile, ignores it.
  // Errors: InvalidArgument if the kernel is not of this device.
  absl::Status PrepareKernel(const LoopKernel& kernel, std::span<const int64_t> sizes,
                             std::span<const int64_t> elements) const;
  // Copies host bytes to a buffer. `source` may be reused when this returns. Waits for the copy if `source`
  // is in a HostBuffer.
  absl::Status Upload(std::span<const std::byte> source, BufferHandle target, uint64_t offset) const;
  // Copies from a buffer to host memory, and waits. If an earlier op failed, returns its error; the contents
  // of `target` are then unspecified.
  absl::Status Download(BufferHandle source, uint64_t offset, std::span<std::byte> target) const;
  // Like Upload and Download, but return at once if the host bytes are in one HostBuffer of this session. The
  // bytes must not be accessed until an event recorded afterwards is complete, or Synchronize returns. They
  // may be freed. An error is returned at the next synchronisation; the target of a download is then
  // unspecified.
  absl::Status StartUpload(std::span<const std::byte> source, BufferHandle target, uint64_t offset) const;
  absl::Status StartDownload(BufferHandle source, uint64_t offset, std::span<std::byte> target) const;
  // Copies bytes between buffers of one device.
  absl::Status Copy(BufferHandle source, uint64_t source_offset, BufferHandle target, uint64_t target_offset,
                    uint64_t bytes) const;

  // Copies bytes from a buffer of another device of the session to one of this device, after what was sent to
  // `source_queue` and to this queue. Later commands of either device see it as done. Errors of commands that
  // made the bytes are errors of this queue, too. If !CopiesDirectly(source_queue), the bytes go by way of
  // host memory, in pieces, both ways at once, and this waits until they have left the other device.
  absl::Status CopyFrom(const Queue& source_queue, BufferHandle source, uint64_t source_offset,
                        BufferHandle target, uint64_t target_offset, uint64_t bytes) const;
  // Returns whether the daemon copies from that device to this one without the host: it is new enough and on
  // this machine, and the device can reach the other's memory.
  absl::StatusOr<bool> CopiesDirectly(const Queue& source_queue) const;

  absl::StatusOr<Event> Record(bool timing = false) const;
  absl::Status Wait(const Event& event) const;  // later commands wait for the event
  // For profiles: later commands are part of `name` (its first 120 bytes), until PopRange. Ranges nest.
  // Without effect on a device that the session does not use yet, and with a daemon that is older than
  // ranges.
  absl::Status PushRange(std::string_view name) const;
  absl::Status PopRange() const;
  // Returns whether all commands have completed, or the queue's error, if they have and there is one, or why
  // the session has ended.
  absl::StatusOr<bool> Query() const;
  absl::Status Synchronize() const;  // waits; returns and clears the queue's error

 private:
  friend class Session;
  Queue(std::shared_ptr<client::Core> core, uint32_t device, uint32_t id)
      : core_(std::move(core)), device_(device), id_(id) {}
  absl::Status CopyThroughHost(const Queue& source_queue, BufferHandle source, uint64_t source_offset,
                               BufferHandle target, uint64_t target_offset, uint64_t bytes) const;
  std::shared_ptr<client::Core> core_;
  uint32_t device_ = 0;
  uint32_t id_ = 0;
};

// A process's connection to a daemon. Thread-safe.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Connect(const ConnectOptions& options);
  // Connects anew in place of `lost`, whose daemon is gone (HasLostDaemon). What is left of `lost` can be
  // freed, and its calls return errors. No handle of its buffers names a buffer of the new session.
  static absl::StatusOr<std::unique_ptr<Session>> ConnectInPlaceOf(const Session& lost,
                                                                   const ConnectOptions& options);
  ~Session();  // calls ReportUnreadError

  const std::vector<DeviceInfo>& devices() const;  // those that $XPUD_VISIBLE_DEVICES selects; may be empty
  // The ops that the daemon knows. Execute returns Unimplemented for others; the session continues.
  const ops::RowSet& rows() const;
  // Returns whether Queue::DefineKernel works with this daemon.
  bool KnowsLoopKernels() const;
  // REQUIRES: `device` < devices().size(); otherwise the process aborts.
  Queue DefaultQueue(uint32_t device) const;
  // Creates a further queue. `priority` (0: normal, -1: high) has no effect: on the device, all queues have
  // the priority of the class that an operator has given to this tenant.
  absl::StatusOr<Queue> CreateQueue(uint32_t device, int priority = 0);
  absl::Status DestroyQueue(const Queue& queue);
  // Allocates `bytes` of host memory (0 is allowed), uninitialised. Freed memory is reused. New memory takes
  // as long as allocating it and registering it with the devices: about 0.3 s for each GiB on GPUs. If this
  // fails, use ordinary memory. Errors: ResourceExhausted if the daemon's limit for a session is reached or
  // the machine has no memory, Unimplemented if the daemon shares no memory, FailedPrecondition if there is
  // no device.
  absl::StatusOr<HostBuffer> AllocateHost(uint64_t bytes);
  // Returns true if the address is in a HostBuffer of this session.
  bool IsHostMemory(const void* address) const;
  // Waits for all queues of one device.
  absl::Status Synchronize(uint32_t device);
  MemoryStats Memory(uint32_t device) const;
  // Returns the bytes that this session could still allocate on a device, whatever others hold and quotas
  // allow. Waits for the session's work there.
  absl::StatusOr<uint64_t> FreeMemory(uint32_t device) const;
  void ResetPeakMemory(uint32_t device);
  void ResetAccumulatedMemory(uint32_t device);
  // Records this session's newest `commands` commands (at most 1,000,000) on a device, from now on. A profile
  // that runs begins anew. An operator's profile (xpuctl profile) is another one. Errors: ResourceExhausted
  // if the profiles of all sessions would take too much of the daemon's memory, Unimplemented if the daemon
  // is on another machine or too old.
  absl::Status StartProfile(uint32_t device, uint64_t commands = 1'000'000);
  // Returns what was recorded, and records no more. Commands that have not completed have no end: synchronize
  // first. Errors: FailedPrecondition if no profile was started.
  absl::StatusOr<Profile> StopProfile(uint32_t device);
  // Lowers this session among those of the same user or claim: 0 (as it begins) to 19, each a fifth less of
  // the device's time beside the others; what they leave idle it gets as before. $XPUD_NICE sets it at the
  // start. Errors: InvalidArgument for more than 19, or less than it has; Unimplemented if the daemon is too
  // old.
  absl::Status SetNice(int nice);
  // Shares a buffer's memory with another process: returns a ticket that one Attach takes. Both then read and
  // write the same memory, and it lives until its last buffer is freed. What was sent to any queue before is
  // complete before the other process's commands on the memory; later order is for the processes to arrange,
  // with Synchronize. A ticket that nobody takes keeps the memory: until 60 s after this session's end. Waits
  // until the daemon has come to it, not for the device. One call at a time waits per thread; the interrupt
  // function may be called meanwhile, so hold no lock that it takes. Errors: InvalidArgument for a buffer
  // without bytes, ResourceExhausted if 4,096 tickets of this user wait to be taken on the device,
  // Unimplemented if the daemon is too old.
  absl::StatusOr<Ticket> Share(const Buffer& buffer);
  // Returns a buffer of the memory that a ticket names. Waits as Share. Errors: NotFound if the ticket is
  // unknown, was taken, or has ended, or is of another user or device: it is not said which;
  // ResourceExhausted if this session's own quota does not allow it, and the ticket remains.
  absl::StatusOr<Buffer> Attach(const Ticket& ticket);
  // Ends a ticket that nobody needs. Waits, and errors, as Attach.
  absl::Status ReturnTicket(const Ticket& ticket);
  // Returns whether Share and Attach work with this daemon.
  bool SharesMemory() const;
  // From now on, `observer` is told of each command on any device. Null: nobody is; the former observer may
  // then be destroyed.
  void ObserveCommands(CommandObserver* observer);
  // Returns an error that says so in a forked child, after the daemon closed the session, or after it died.
  absl::Status status() const;
  // Whether status() is an error because the daemon died, ended or cannot be reached any more: a new session
  // may reach the next one. Not if the daemon closed the session.
  bool HasLostDaemon() const;
  // Whether status() is an error, as found in the last 20 ms. Costs some nanoseconds.
  bool HasEnded() const;
  // Prints the first error that no call has returned to stderr, if there is one. First waits up to a second
  // for commands in flight. Only the first call does anything. For programs that end without having read all
  // results.
  void ReportUnreadError() const;
  const std::string& address() const;  // a socket's path, or HOST:PORT
  bool started_daemon() const;         // Connect started a private daemon
  client::Core& core() const { return *core_; }
  const std::shared_ptr<client::Core>& shared_core() const { return core_; }

 private:
  explicit Session(std::shared_ptr<client::Core> core) : core_(std::move(core)) {}
  std::shared_ptr<client::Core> core_;
};

}  // namespace xpud
