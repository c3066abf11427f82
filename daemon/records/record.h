// What is noted of a command: little of every command, for the flight recorder, and more of those of a
// session that is profiled. Times are on the monotonic clock, NowNs. Plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/api/op_call.h"
#include "proto/wire/commands.h"

namespace xpud::records {

// The type and sizes of a tensor: of its first five dimensions, and up to 2^32 - 1.
struct TensorShape {
  static constexpr int kSizes = 5;
  uint8_t dtype;
  uint8_t rank;
  std::array<uint32_t, kSizes> sizes;
};

// Why a session's next command does not run yet.
enum class Stall : uint8_t {
  kNone,
  kCompiling,   // its kernel is being compiled
  kMemory,      // memory is being freed or brought
  kQueue,       // another queue of the session
  kPeer,        // another device of the session
  kDevice,      // the device's queue is full
  kErrorWords,  // too many commands that check indices are in flight
  kSharer,      // what another session had begun before it shared the memory
  kMovedOut,    // its memory has left the device, and returns
  kLent,        // another device copies what it would write, or many such copies are open
};
inline constexpr const char* kStallNames[] = {"none",
                                              "compiling",
                                              "memory",
                                              "another queue",
                                              "another device",
                                              "device busy",
                                              "device busy with commands that check indices",
                                              "another process's work on shared memory",
                                              "memory (moved out)",
                                              "a copy to another device"};

// "compiling (add.Tensor)"; `row`: of the command that waits, or null.
std::string Describe(Stall stall, const ops::Row* row);

// Of every command.
struct alignas(64) FlightRecord {
  uint64_t sequence;  // of the session on this device, from 1
  uint64_t run_ns;    // when the lane ran it; the clock is read once for a few commands
  uint64_t copied_bytes;
  uint16_t row;  // of an op: its wire number
  wire::CommandKind kind;
  uint8_t queue;
  bool refused;
  bool has_output;
  uint16_t launches;
  TensorShape output;  // the first, if it has any
  uint32_t kernel;     // the client's name of its loop kernel: a number of Recorder::flight_names
};
static_assert(sizeof(FlightRecord) == 64);

// Of a command of a profiled session.
struct CommandRecord {
  static constexpr int kTensors = 6;
  uint64_t sequence;
  uint64_t arrived_ns;    // when it was published, or as QueueWait estimates it for those that came together
  uint64_t decoded_ns;    // when the lane first turned to it
  uint64_t submitted_ns;  // when it was planned, and its first work was sent to the device; 0: it has none
  uint64_t began_ns, ended_ns;  // on the device; 0: not known
  uint64_t device_ns;           // time on the device: less than ended - began if others ran in between
  uint64_t bytes;
  uint64_t memory_bytes;  // that the session then held on the device
  uint64_t appended_ns;   // when an executor process began to append it to the device's queue; 0: not known
  uint32_t append_ns;     // how long that took, at most 4 s
  float operations;       // on elements
  uint32_t kernel;        // the name of its first launch, or of a range: a number of Profile::names
  uint16_t row;
  uint16_t launches;
  wire::CommandKind kind;
  uint8_t queue;
  Stall stall;  // the last one before it ran
  bool refused;
  uint8_t tensors;  // operands that are tensors; the first ones are below, outputs before inputs
  bool exact;       // times on the device were measured; otherwise they are estimates
  bool published;   // its client said when; otherwise arrived_ns is an estimate
  bool replayed;    // its work was appended in a recording
  std::array<TensorShape, kTensors> shapes;
};
static_assert(sizeof(CommandRecord) == 248);

}  // namespace xpud::records
