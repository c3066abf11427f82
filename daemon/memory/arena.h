// The device memory of one tenant: chunks, and what is free in them. Knows no limits: see Pool. REQUIRES: the
// lane's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/chunk.h"
#include "daemon/memory/range_allocator.h"
#include "daemon/memory/usage.h"
#include "daemon/memory/user.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/time_grant.h"
#include "proto/base/histogram.h"

namespace xpud::memory {

class Residency;

class Arena {
 public:
  using Range = RangeAllocator::Range;
  // Of all arenas of a device.
  struct Totals {
    uint64_t used_bytes = 0, chunk_bytes = 0;
    uint64_t on_device = 0;  // of the chunks' bytes; those that are coming or going included
  };

  Arena(executor::Device& device, Totals& totals, Residency& residency, const Tenant& tenant);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Bytes of the smallest chunk that has room for a range of `bytes`.
  static uint64_t ChunkSizeFor(uint64_t bytes);
  // Takes a chunk of the device that has room for `bytes`: a larger one the more the arena has, but of at
  // most `most` bytes. Returns the device's error. REQUIRES: ChunkSizeFor(bytes) <= most.
  absl::Status Grow(uint64_t bytes, uint64_t most);
  // The same with a chunk that is away: the device has no memory for it now.
  absl::Status GrowAway(uint64_t bytes, uint64_t most);
  // Returns completely free chunks to the device, as long as `keep` bytes remain.
  void Trim(uint64_t keep);

  // As in RangeAllocator. Allowed for access is what is allocated.
  std::optional<Range> Allocate(uint64_t bytes);
  void Free(const Range& range);
  bool Fits(uint64_t bytes) const { return ranges_.Fits(bytes); }
  void ReturnSlabs() { ranges_.ReturnSlabs(); }
  bool IsReturnPaid() const { return ranges_.IsReturnPaid(); }

  const Tenant& tenant() const { return tenant_; }
  uint64_t used_bytes() const { return ranges_.used_bytes(); }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  // Of these: on the device, or coming or going.
  uint64_t on_device() const { return on_device_; }
  const std::map<uint64_t, std::unique_ptr<Chunk>>& chunks() const { return chunks_; }
  // Returns the chunk that has `address`. REQUIRES: it is of this arena.
  Chunk& ChunkOf(uint64_t address) const { return *std::prev(chunks_.upper_bound(address))->second; }

  // The sessions whose memory is here.
  void AddUser(User& user) { users_.push_back(&user); }
  void RemoveUser(User& user);
  const std::vector<User*>& users() const { return users_; }

  // For Residency. `is_watched`: commands say what they use, and wait until that is on the device.
  bool is_watched() const { return watch_.on; }
  struct Watch {
    bool on = false;
    uint64_t commands = 0;            // that used memory
    std::vector<Chunk::Use> earlier;  // what was under way when it began
    PriorityClass priority = PriorityClass::kInteractive;
    bool is_at_work = false;      // now
    uint64_t last_work_ns = 0;    // before that
    std::vector<Chunk*> wanted;   // by commands that wait
    bool is_suspended = false;    // others have their turn; no command uses memory
    uint64_t waits_since_ns = 0;  // for its turn, or for memory; 0: it does not
    uint64_t fetched_ns = 0;      // when its memory was last fetched
    uint64_t exchange_ns = 0;     // how long memory has moved while it waits
    MovedBytes moved_before;      // what was moved when its rates were last taken
    uint64_t turn_ns = 0;         // the length of its turn
    uint64_t turn_ends_ns = 0;    // after that others may have its memory
  };
  Watch& watch() { return watch_; }
  const Watch& watch() const { return watch_; }
  void MovedIn(uint64_t bytes) { SetOnDevice(on_device_ + bytes); }
  void MovedOut(uint64_t bytes) { SetOnDevice(on_device_ - bytes); }
  // Of its tenant, since the daemon started.
  const MovedBytes& moved() const { return moved_; }
  MovedBytes& moved() { return moved_; }
  // What blocks that were merged would take beyond what they take. See Pool::Merge.
  uint64_t saved() const { return saved_; }
  void Saves(int64_t more) { saved_ += static_cast<uint64_t>(more); }
  // Bytes of merged blocks that were copied because one of their buffers was written.
  uint64_t copied_at_write() const { return copied_at_write_; }
  void CopiedAtWrite(uint64_t bytes) { copied_at_write_ += bytes; }
  const Histogram& stalls() const { return stalls_; }
  Histogram& stalls() { return stalls_; }
  // Adds what the tenant did before.
  void Count(const MoveCounters& earlier) {
    moved_.in += earlier.in;
    moved_.out += earlier.out;
    copied_at_write_ += earlier.copied_at_write;
    stalls_ += earlier.stalls;
  }

 private:
  uint64_t SizeToGrow(uint64_t bytes, uint64_t most) const;
  void Add(std::unique_ptr<executor::Chunk> memory, Chunk::Place place);
  void Remove(std::unique_ptr<Chunk> chunk);
  void SetOnDevice(uint64_t bytes) {
    totals_.on_device += bytes - on_device_;
    on_device_ = bytes;
  }

  executor::Device& device_;
  Totals& totals_;
  Residency& residency_;
  const Tenant tenant_;
  RangeAllocator ranges_;
  std::map<uint64_t, std::unique_ptr<Chunk>> chunks_;  // by address
  uint64_t chunk_bytes_ = 0, on_device_ = 0;
  uint64_t saved_ = 0, copied_at_write_ = 0;
  std::vector<User*> users_;
  Watch watch_;
  MovedBytes moved_;
  Histogram stalls_;  // of commands that waited for memory that was moved out
};

}  // namespace xpud::memory
