// A chunk of a tenant's arena: where it is, what the host has of it, and when it is used. See Residency.
// REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/executor/api/device.h"
#include "daemon/executor/api/mover.h"
#include "daemon/memory/exported_memory.h"
#include "daemon/memory/file_store.h"
#include "daemon/memory/user.h"

namespace xpud::memory {

class Arena;

struct Chunk {
  enum class Place : uint8_t { kDevice, kLeaving, kAway, kReturning };
  // Its contents are copied from `host` to `file`, or back.
  enum class Filing : uint8_t { kNone, kWriting, kReading };
  // A use by commands that may not have ended: the last one of a queue.
  struct Use {
    const User* user;
    Mark mark;
  };
  static constexpr uint64_t kNever = UINT64_MAX;

  std::unique_ptr<executor::Chunk> memory;
  Arena* arena = nullptr;  // null: it ended while the chunk moved
  Place place = Place::kDevice;
  bool changed = true;       // its contents are not those in `host`; away: it has none, and returns as zeros
  bool comes_back = false;   // it left for others, not for memory of the same tenant
  executor::HostParts host;  // where a copy of its contents is, or goes
  FileSlots file;            // the same; on the device it has none, unless Filing goes on
  Filing filing = Filing::kNone;
  int failed_reads = 0;        // of its file, one after another
  uint64_t read_after_ns = 0;  // the next one
  bool is_lost = false;        // its contents could not be read: no command may use it
  uint64_t left_ns = 0;        // when it left the device
  std::vector<Use> uses;       // while its arena is watched
  uint64_t last_use = 0;       // by the arena's count of commands
  uint64_t last_use_ns = 0;
  uint64_t period = 0;                   // between its last two uses; 0: not known
  uint64_t expected = kNever;            // the next use, as the commands that wait say
  std::shared_ptr<executor::Move> move;  // also for a while after it was forgotten
  // How other devices map its memory; null: none has asked.
  std::shared_ptr<ExportedMemory> exported;
  uint64_t loans = 0;  // parts that other devices copy, or will: it stays where it is

  uint64_t begin() const { return reinterpret_cast<uint64_t>(memory->address()); }
  uint64_t bytes() const { return memory->bytes(); }
  bool is_on_device() const { return place != Place::kAway; }
  bool is_moving() const { return move != nullptr || filing != Filing::kNone; }
  // Whether its contents must be read from its file before it returns.
  bool is_in_file() const { return !file.empty() && (host.empty() || filing == Filing::kReading); }
  // Whether `host` only repeats what `file` has.
  bool is_in_both() const { return !file.empty() && !host.empty() && filing == Filing::kNone; }
  // Whether commands that wait will use it, after command `now`.
  bool IsExpected(uint64_t now) const { return expected != kNever && expected > now; }
  // When it is used next, after command `now`. Programs repeat themselves: if no command that waits says it,
  // it is used as long after the last use as that was after the one before; what was not used then has
  // longer to wait the longer it waits already.
  uint64_t NextUse(uint64_t now) const {
    if (IsExpected(now)) return expected;
    if (period == 0) return kNever - 1;
    return last_use + period > now ? last_use + period : now + (now - last_use) + 1;
  }
  // It is used by command `command` of the arena. Uses that follow each other closely are one.
  void Used(uint64_t command) {
    const uint64_t since = command - last_use;
    if (last_use != 0 && since > period / 4) period = since;
    last_use = command;
    expected = kNever;
  }
  // Command `command` waits for it.
  void Missed(uint64_t command) {
    if (command < last_use + period / 2) period = 0;  // the program does something else now
    expected = command;
  }
  // `mark` of the user uses it.
  void UsedBy(const User& user, const Mark& mark) {
    const auto same = std::ranges::find_if(
        uses, [&](const Use& use) { return use.user == &user && use.mark.queue == mark.queue; });
    if (same == uses.end())
      uses.push_back({&user, mark});
    else
      same->mark = mark;
  }
  // Forgets uses that have ended. Returns whether there are others.
  bool IsInUse() {
    std::erase_if(uses, [](const Use& use) { return use.user->HasCompleted(use.mark); });
    return !uses.empty();
  }
};

}  // namespace xpud::memory
