// What the daemon and an executor process say to each other. Work goes through a ring in shared memory; what
// needs an answer or an fd goes through two sockets. Both ends are one binary, so nothing here is versioned,
// and the executor trusts the daemon. The daemon trusts nothing that it reads back but positions, which it
// checks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/executor/process/sensor_exchange.h"
#include "proto/transport/handshake.h"

namespace xpud::executor::process {

inline constexpr size_t kRingBytes = size_t{8} << 20;
inline constexpr size_t kMessageAlignment = 64;
inline constexpr uint32_t kMaxQueues = 1
                                       << 16;  // of all sessions on a device: more than all clients may have

enum class MessageKind : uint32_t {
  kCreateQueue,
  kDestroyQueue,
  kLoadModule,    // the module's bytes follow
  kLoadKernel,    // its entry's name follows
  kUnloadKernel,  // and its module
  kLaunch,        // argument values follow, then their offsets (uint16_t)
  kCopy,
  kUpload,  // the bytes follow
  kZero,
  kWriteValue,
  kWriteTimestamp,
};

struct Message {
  uint32_t bytes;  // with what follows; a multiple of the alignment
  MessageKind kind;
  uint32_t queue;
  uint32_t kernel;  // kLoadKernel, kUnloadKernel, kLaunch: Kernel::index
  union {
    struct {
      uint32_t groups[3], group_size[3];
      uint32_t argument_bytes, argument_count;
    } launch;
    struct {
      uint64_t target, source, bytes;
    } memory;  // kCopy, kUpload, kZero
    struct {
      uint64_t word, value;
    } write;
    struct {
      uint64_t bytes;
      uint32_t format;  // ModuleImage::Format
      uint32_t module;  // a number of its own
    } load;
    int32_t priority;
    std::byte unused[48];  // what follows begins at a multiple of the alignment, in the ring
  };
};
static_assert(sizeof(Message) == kMessageAlignment);

enum class ExecutorState : uint32_t { kWorking, kDeviceLost };

struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;      // the daemon has written so far
  alignas(64) std::atomic<uint64_t> head;      // the executor has appended all messages before it
  alignas(64) std::atomic<uint32_t> sleeping;  // a daemon that writes must ring the doorbell
  std::atomic<uint32_t> state;                 // ExecutorState
  char reason[256];                            // of kDeviceLost
  std::atomic<uint64_t> replayed;              // launches that were appended as part of a recording
};

// The first error of a queue; text is stable until the daemon has taken it.
struct QueueReport {
  std::atomic<uint32_t> raised;
  uint32_t code;  // absl::StatusCode
  char text[248];
};

struct SharedPages {
  RingControl control;
  SensorExchange sensors;  // of the first ring
  QueueReport reports[kMaxQueues];
};

enum class RequestKind : uint32_t {
  kTakeDevice,   // the first one, once; the answer describes the device
  kAllocate,     // memory at `address`; the answer carries its fd
  kImport,       // memory of the fd at `address`
  kFree,         // of either; not answered
  kImportHost,   // maps the fd at `address` for the executor and the device
  kReleaseHost,  // not answered
  kPing,         // answered at once
  kAssemble,     // the fd holds text; the answer's holds machine code
  kAsk,          // the fd holds a HOST launch; the answer has a value
};

struct Request {
  RequestKind kind;
  uint32_t unused;
  uint64_t address;
  uint64_t bytes;
};

struct Answer {
  uint32_t code;     // absl::StatusCode
  uint32_t devices;  // kTakeDevice: how many there are
  uint64_t value;    // kAsk; kAssemble: bytes
  char text[512];    // of an error
  char processor[64];
  uint32_t target;  // kernels::Target
  uint32_t reserved;
  transport::DeviceRecord device;
};

// A HOST launch that is asked for apart from any queue, as it lies in kAsk's memory: this, then module and
// entry (NUL-terminated), values and offsets.
struct AskHeader {
  uint32_t module_at, entry_at;
  uint32_t values_at, value_bytes;  // to be copied to a multiple of 64
  uint32_t offsets_at, arguments;
};

}  // namespace xpud::executor::process
