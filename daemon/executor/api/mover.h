// Moves the memory of chunks between a device and the host, both ways at once, on threads of its own: nothing
// else waits for it. REQUIRES: the lane's thread, unless a function says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/api/device.h"

namespace xpud::executor {

// A part of the contents of a chunk, in host memory that the device reads and writes.
struct HostPart {
  const HostMemory* memory = nullptr;
  uint64_t offset = 0, bytes = 0;
};

// One move that was started.
class Move {
 public:
  virtual ~Move() = default;
  // The chunk shall stay after all. Returns whether it does, with its contents as they are: then it can be
  // used at once, and `done` gets Cancelled. False: it is too late, or the chunk is returning.
  virtual bool Forget() = 0;
};

// The parts of a move, in the order of the chunk's bytes: together at most the chunk's size; what is beyond
// them is not copied.
using HostParts = std::vector<HostPart>;

class Mover {
 public:
  // Called from Device::Poll, once. The chunk is away if a leave is OK, and there if a return is OK; after
  // any error it is where it was, and its contents are there.
  using Done = std::function<void(absl::Status)>;

  virtual ~Mover() = default;
  // Copies the chunk's contents to `to`; then the memory leaves the device. REQUIRES: the chunk is there, no
  // work in flight writes it before `done`, unless Forget returned true, and chunk and host memory outlive
  // the call of `done`.
  virtual std::shared_ptr<Move> StartLeave(Chunk& chunk, HostParts to, Done done) = 0;
  // Memory of the device comes to the chunk's addresses, with the contents that `from` has. Without parts it
  // is zero. ResourceExhausted: the device has no memory left. REQUIRES: the chunk is away; they outlive the
  // call of `done`.
  virtual std::shared_ptr<Move> StartReturn(Chunk& chunk, HostParts from, Done done) = 0;
  // Ends all moves, where they are: waits for calls that run, and calls no `done` any more. Then their chunks
  // and host memory may be destroyed, and no move is started. Destroying the device does the same.
  virtual void End() {}
};

}  // namespace xpud::executor
