// The commands that a client puts on its ring, as bytes: fixed width, little-endian, each a multiple of 8
// bytes and at most kMaxCommandBytes. The daemon decodes a private copy (decode.h); clients write with
// encode.h.
//
// A session has a ring for each device that it uses, and numbers that ring's commands from 1: the number is
// the command's *sequence*. A queue's completed counter is the sequence of its last finished command. Ids of
// queues, buffers, timestamps and loop kernels belong to the ring. Queue 0 exists from the start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace xpud::wire {

// The range of protocol versions that this source speaks; the daemon picks the highest that both know.
inline constexpr uint16_t kOldestVersion = 5;
inline constexpr uint16_t kNewestVersion = 12;

inline constexpr size_t kMaxCommandBytes = 64 << 10;
inline constexpr size_t kMaxInlineUploadBytes = 2048;
inline constexpr size_t kMaxRangeName = 120;
inline constexpr uint32_t kMaxQueues = 64;
inline constexpr uint32_t kMaxTimestamps = 1024;
inline constexpr uint32_t kMaxBuffers = 1u << 20;
// Of loop kernels (proto/loops), whose ids are 1 to kMaxKernels.
inline constexpr uint32_t kMaxKernels = 4096;
inline constexpr size_t kMaxKernelName = kMaxRangeName;

enum class CommandKind : uint8_t {
  kNop = 1,
  kAllocate = 2,
  kFree = 3,
  kExecute = 4,
  kUpload = 5,
  kUploadInline = 6,
  kDownload = 7,
  kCopy = 8,
  kCreateQueue = 9,
  kDestroyQueue = 10,
  kTimestamp = 11,
  kWait = 12,
  kClearError = 13,
  kReleaseMemory = 14,
  kReserve = 15,
  kRange = 16,         // from version 7 on
  kDefineKernel = 17,  // from version 9 on, as kForgetKernel
  kForgetKernel = 18,
  kPrepareKernel = 19,  // from version 10 on
  kShare = 20,          // from version 11 on, as kAttach
  kAttach = 21,
  kLend = 22,  // from version 12 on, as kCopyFrom
  kCopyFrom = 23,
};

constexpr uint32_t PadTo8(size_t bytes) { return static_cast<uint32_t>((bytes + 7) & ~size_t{7}); }

struct CommandHeader {
  uint32_t bytes;  // of the whole command, this header included
  CommandKind kind;
  uint8_t reserved;  // 0
  uint16_t queue;
};

struct Handle {
  uint32_t id;
  uint32_t generation;
};

struct NopCommand {
  CommandHeader header;
};
struct AllocateCommand {
  CommandHeader header;
  Handle buffer;  // a free id with a generation larger than any before
  uint64_t bytes;
};
struct FreeCommand {
  CommandHeader header;
  Handle buffer;
};
// Bytes of the host's: in staging (memory 0), or in host memory that the client shares.
struct HostPlace {
  uint64_t offset;
  uint32_t memory;
  uint32_t reserved;
};
struct UploadCommand {  // host -> buffer
  CommandHeader header;
  Handle buffer;
  uint64_t offset;
  HostPlace host;
  uint64_t bytes;
};
struct UploadInlineCommand {  // followed by `bytes` bytes, padded to 8
  CommandHeader header;
  Handle buffer;
  uint64_t offset;
  uint32_t bytes;
  uint32_t reserved;
};
struct DownloadCommand {  // buffer -> host
  CommandHeader header;
  Handle buffer;
  uint64_t offset;
  HostPlace host;
  uint64_t bytes;
};
struct ReleaseMemoryCommand {  // host memory, which no later command names
  CommandHeader header;
  uint32_t memory;
  uint32_t reserved;
};
struct CopyCommand {
  CommandHeader header;
  Handle source;
  Handle target;
  uint64_t source_offset;
  uint64_t target_offset;
  uint64_t bytes;
};
struct ReserveCommand {  // asks for so much credit in all; UINT64_MAX: for the session's narrowest limit
  CommandHeader header;
  uint64_t bytes;
};
struct CreateQueueCommand {  // header.queue is the new queue's id
  CommandHeader header;
  int32_t priority;  // has no effect: the daemon gives all queues of a session the priority of its class
  uint32_t reserved;
};
struct DestroyQueueCommand {
  CommandHeader header;
};
struct TimestampCommand {  // device time in ns into the completion page's slot
  CommandHeader header;
  uint32_t slot;
  uint32_t reserved;
};
// header.queue continues after queue `other` of `device` completed `sequence`. On the ring's own device, that
// is an earlier command. Another device must be open; waits in a cycle, or for a command that is never sent,
// never end, and hold up this ring only.
struct WaitCommand {
  CommandHeader header;
  uint32_t device;
  uint32_t other;
  uint64_t sequence;
};
struct ClearErrorCommand {  // the client has reported errors up to this count of its queue
  CommandHeader header;
  uint32_t errors;
  uint32_t reserved;
};

// For profiles: the queue's following commands are part of something that the program names, or no longer
// part of the last such thing. Followed by `bytes` bytes of the name, padded to 8; none: the range ends.
struct RangeCommand {
  CommandHeader header;
  uint32_t bytes;
  uint32_t reserved;
};

// Defines a loop kernel, which later calls of row `xpud::loop` on this ring name by its id. Followed by
// `bytes` bytes of the kernel (proto/loops/codec.h), then `name_bytes` of its name for people, both together
// padded to
// 8. A kernel that is not allowed raises an error on the queue; its id is in use all the same.
struct DefineKernelCommand {
  CommandHeader header;
  uint32_t kernel;  // a free id
  uint32_t bytes;
  uint32_t name_bytes;
  uint32_t reserved;
};
struct ForgetKernelCommand {  // the id is free again
  CommandHeader header;
  uint32_t kernel;
  uint32_t reserved;
};

// Has a loop kernel compiled for a call that will follow, and waits for nothing. Followed by the call's
// `sizes` sizes and, of each operand of the kernel, its number of elements (scalars: 1), 8 bytes each. A
// hint: one that does not fit the kernel, or that comes while many kernels wait, has no effect.
struct PrepareKernelCommand {
  CommandHeader header;
  uint32_t kernel;
  uint16_t sizes;
  uint16_t operands;
};
inline constexpr uint64_t kMaxElements = uint64_t{1} << 56;  // of an operand

// The daemon answers a command in timestamp slots that it names: first the words that the answer has, then a
// word that says so (AnswerOf).
inline constexpr size_t kAnswerSlots = 4;
enum class Answer : uint8_t {
  kDone = 1,
  kNoMemory,     // of kShare: the buffer has no bytes, or its allocation failed
  kTicketLimit,  // of kShare: words: the limit
  kNoTicket,     // of kAttach: unknown, taken, ended, or of another tenant or device
  kBeyondQuota,  // of kAttach: words: the session's own quota, and what it has
};
// What slot 0 gets: no time on a device's clock.
constexpr uint64_t AnswerOf(uint64_t sequence, Answer answer) {
  return uint64_t{1} << 63 | uint64_t{static_cast<uint8_t>(answer)} << 56 |
         (sequence & ((uint64_t{1} << 56) - 1));
}

// Asks for a ticket that one AttachCommand of any session of the tenant on this device takes. What was put
// into the session's queues before is complete before the other session's commands on the memory. From now on
// the tenant is charged for the memory, not the session. The answer's words: the ticket, and a number that is
// the same for all tickets of the memory.
struct ShareCommand {
  CommandHeader header;
  Handle buffer;
  uint32_t slots[kAnswerSlots];
};
// Takes a ticket: the buffer names its memory. If it is refused, the buffer has no memory, and is freed like
// others. A null buffer gives the ticket back. The answer's words: the bytes that the buffer has.
struct AttachCommand {
  CommandHeader header;
  Handle buffer;  // as in AllocateCommand, or null
  uint64_t ticket[2];
  uint32_t slots[kAnswerSlots];
};

// Lends a part of a buffer to another device of the session, for one copy: it is ready when the queue has
// done what was put into it before. Until the copy has ended, writes to the part wait, on this ring, and so
// does the end of its memory. At most kMaxLoans of a session are open; a further one waits.
struct LendCommand {
  CommandHeader header;
  Handle buffer;
  uint64_t offset;
  uint64_t bytes;  // not 0
  uint64_t loan;   // the ring's loans are numbered from 1
};
inline constexpr uint64_t kMaxLoans = 1024;

// Copies what ring `source` lends, another device's, to a buffer. Waits until it is ready; for a loan that
// never comes, for ever, and holds up this ring only. Poison is copied, too: the queue gets its error.
struct CopyFromCommand {
  CommandHeader header;
  Handle target;
  uint64_t offset;
  uint64_t bytes;  // those of the loan
  uint64_t loan;
  uint32_t source;  // the device
  uint32_t reserved;
};

// Followed by:
// - for a family with tensor lists, the length of each as a u16, outputs' lists first, padded to 8 bytes;
// - the operands: outputs, then inputs, those of a list one after the other;
// - the attributes, all that the family's schema names, in its order: 8 bytes each, an int64 or a double as
//   the schema says. A list is its length, then its elements.
struct ExecuteCommand {
  CommandHeader header;
  uint16_t row;
  uint8_t compute;
  uint8_t reserved;  // 0
  uint16_t outputs;  // operands
  uint16_t inputs;
};

enum class OperandKind : uint8_t { kAbsent = 0, kTensor = 1, kInteger = 2, kReal = 3 };

inline constexpr uint8_t kStrided = 1;  // strides follow the sizes; else row-major without gaps
inline constexpr uint8_t kWide = 2;     // offset, sizes and strides are 64-bit; else 32-bit

// kAbsent: nothing follows. kInteger, kReal: 8 bytes follow. kTensor, narrow: generation, offset (u32, in
// elements), sizes, strides (u32 each), padded to 8. kTensor, wide: generation, 4 zero bytes, offset (u64),
// sizes, strides (u64 each).
struct OperandHeader {
  OperandKind kind;
  uint8_t dtype;
  uint8_t rank;
  uint8_t flags;
  uint32_t buffer;
};

static_assert(sizeof(CommandHeader) == 8 && sizeof(AllocateCommand) == 24 && sizeof(FreeCommand) == 16);
static_assert(sizeof(UploadCommand) == 48 && sizeof(UploadInlineCommand) == 32 &&
              sizeof(DownloadCommand) == 48 && sizeof(ReleaseMemoryCommand) == 16);
static_assert(sizeof(CopyCommand) == 48 && sizeof(CreateQueueCommand) == 16 &&
              sizeof(TimestampCommand) == 16);
static_assert(sizeof(RangeCommand) == 16 && sizeof(ReserveCommand) == 16 && sizeof(WaitCommand) == 24 &&
              sizeof(ClearErrorCommand) == 16);
static_assert(sizeof(DefineKernelCommand) == 24 && sizeof(ForgetKernelCommand) == 16 &&
              sizeof(PrepareKernelCommand) == 16);
static_assert(sizeof(ShareCommand) == 32 && sizeof(AttachCommand) == 48);
static_assert(sizeof(LendCommand) == 40 && sizeof(CopyFromCommand) == 48);
static_assert(sizeof(ExecuteCommand) == 16 && offsetof(ExecuteCommand, inputs) == 14);
static_assert(sizeof(OperandHeader) == 8 && offsetof(OperandHeader, buffer) == 4);
static_assert(std::is_trivially_copyable_v<ExecuteCommand> && std::is_trivially_copyable_v<CopyCommand>);

}  // namespace xpud::wire
