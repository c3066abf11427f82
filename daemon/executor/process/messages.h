// Messages between the daemon and an executor process. Work goes through a ring in shared memory; requests
// that need a reply or an fd go through sockets. Both ends are the same binary, so there are no versions,
// and the executor trusts the daemon. The daemon trusts nothing that it reads back except positions, which it
// checks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/executor/api/peak_rates.h"
#include "daemon/executor/process/sensor_exchange.h"
#include "daemon/executor/process/times_exchange.h"
#include "daemon/tenant/time_grant.h"
#include "kernels/api/launch.h"
#include "proto/transport/handshake.h"

namespace xpud::executor::process {

inline constexpr size_t kRingBytes = size_t{8} << 20;
inline constexpr size_t kMessageAlignment = 64;
// Of all sessions on a device: more than all clients may have.
inline constexpr int kMaxQueueBits = 16;
inline constexpr uint32_t kMaxQueues = 1 << kMaxQueueBits;

enum class MessageKind : uint32_t {
  kCreateQueue,
  kDestroyQueue,
  kLoadModule,    // followed by the module's bytes
  kLoadKernel,    // followed by its entry's name
  kUnloadKernel,  // also unloads its module
  // Work.
  kLaunch,  // followed by the argument values, then their offsets (uint16_t)
  kCopy,
  kUpload,  // followed by the bytes
  kWriteValue,
  kWriteTimestamp,
};

// Whether it is the work of a queue; see DeviceQueue::appended.
inline bool IsWork(MessageKind kind) {
  return kind >= MessageKind::kLaunch && kind != MessageKind::kWriteValue;
}

struct Message {
  uint32_t bytes;  // including the payload; a multiple of the alignment
  MessageKind kind;
  uint32_t queue;
  uint32_t kernel;  // kLoadKernel, kUnloadKernel, kLaunch: Kernel::index
  union {
    struct {
      uint32_t groups[3], group_size[3];
      uint32_t argument_bytes, argument_count;
      uint64_t ideal_ns;  // see kernels::LaunchList
    } launch;
    struct {
      uint64_t target, source, bytes;
    } memory;  // kCopy, kUpload
    struct {
      uint64_t word, value;
    } write;
    struct {
      uint64_t bytes;
      uint32_t format;  // ModuleImage::Format
      uint32_t module;  // the module's number
    } load;
    struct {
      uint64_t first;  // the number of its first piece of work; see DeviceQueue::appended
      PriorityClass priority;
    } create;
    std::byte unused[48];  // the payload begins at a multiple of the alignment in the ring
  };
};
static_assert(sizeof(Message) == kMessageAlignment);

enum class ExecutorState : uint32_t { kWorking, kDeviceLost };

struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;      // messages before it are written
  alignas(64) std::atomic<uint64_t> head;      // messages before it are appended by the executor
  alignas(64) std::atomic<uint32_t> sleeping;  // 1: a daemon that writes must signal the doorbell
  std::atomic<uint32_t> state;                 // ExecutorState
  char reason[256];                            // why the device is lost
  std::atomic<uint64_t> replayed;              // launches that were appended as part of a recording
};

// The first error of a queue. The text does not change until the daemon has taken it.
struct QueueReport {
  std::atomic<uint32_t> raised;
  uint32_t code;  // absl::StatusCode
  char text[248];
};

struct SharedPages {
  RingControl control;
  SensorExchange sensors;  // used in the first ring only
  TimesExchange times;     // likewise
  QueueReport reports[kMaxQueues];
};

enum class RequestKind : uint32_t {
  kTakeDevice,     // the first request, once; the reply describes the device
  kAllocate,       // memory at `address`, in place of what is there; the reply has its fd
  kImport,         // maps the fd's memory at `address`, in place of what is there
  kReserve,        // keeps `address` without memory, in place of what is there
  kFree,           // frees any of them; no reply
  kCopyOut,        // copies device memory at `address`, within a chunk, to `host`
  kCopyIn,         // the other way. NotFound: the executor does not have the host memory, maybe not yet
  kImportHost,     // maps the fd at `address` for the executor and the device
  kReleaseHost,    // no reply
  kPing,           // replied to at once
  kAssemble,       // the fd holds text; the fd of the reply holds machine code
  kRunHostKernel,  // the fd holds a HOST launch; the reply has a value
};

struct Request {
  RequestKind kind = RequestKind::kPing;
  uint32_t unused = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t host = 0;
};

struct Answer {
  uint32_t code;     // absl::StatusCode
  uint32_t devices;  // kTakeDevice: count of devices
  uint64_t value;    // kRunHostKernel: the result; kAssemble: size
  char text[512];    // the error's message
  char processor[64];
  uint32_t target;       // kernels::Target
  uint32_t has_doubles;  // 0 or 1
  uint32_t moves;        // 0 or 1: whether chunks can leave
  uint64_t peers;        // bit d: it can map memory of device d of the back end
  kernels::GroupLimits most_groups;
  transport::DeviceRecord device;
  PeakRates peak;
};

// The HOST launch of a kRunHostKernel request, as it lies in its memory: this header, then module and entry
// (NUL-terminated), argument values and offsets.
struct HostKernelHeader {
  uint32_t module_at, entry_at;
  uint32_t values_at, value_bytes;  // must be copied to an address that is a multiple of 64
  uint32_t offsets_at, arguments;
};

}  // namespace xpud::executor::process
