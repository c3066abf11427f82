// Which chunks of a device's tenants are on the device, which in host memory, and which in files. While all
// fit, nothing is watched and nothing moves. Otherwise
//   - chunks that nobody needs leave first: those of idle tenants, lower classes first, then what was not
//     used for a second;
//   - a tenant that alone is larger than the device exchanges its own chunks, the latest next use first;
//   - tenants that are at work and do not fit together take turns. The one that waits longest gets what those
//     have whose turns are over; these are suspended until they come back;
//   - when host memory is full, what is away for longest goes on to files. It returns by way of host memory,
//     a part of which is kept free for that.
// What a guarantee covers never leaves for others. A command waits (Hold) until what it uses is on the
// device. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/chunk.h"
#include "daemon/memory/chunk_moves.h"
#include "daemon/memory/host_store.h"
#include "daemon/memory/ledger.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/time_grant.h"

namespace xpud::memory {

class Residency {
 public:
  struct Options {
    uint64_t host_limit = 0;   // of host memory for what leaves; 0: nothing does
    FileStore::Space files{};  // for what has no room there
    uint64_t turn_limit_ns = 10'000'000'000;
    // A move has failed, and is tried again. At most once a second.
    std::function<void(const absl::Status&)> on_trouble = [](const absl::Status&) {};
    // The driver gives no memory, for another reason than that there is none. As often.
    std::function<void(const absl::Status&)> on_refusal = [](const absl::Status&) {};
    std::function<void()> wake = [] {};  // called on any thread when Poll has something to do
  };

  Residency(executor::Device& device, const Ledger& ledger, const Arena::Totals& totals, Options options);
  ~Residency();
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  // Of a tenant: the higher ones keep their memory longer. A seam for the lane, which knows claims.
  void SetClasses(std::function<PriorityClass(const Tenant&)> class_of) { class_of_ = std::move(class_of); }
  void SetTurnLimit(uint64_t ns) { options_.turn_limit_ns = ns; }

  // See on_refusal.
  void Refused(const absl::Status& why);

  // For Arena.
  void Add(Arena& arena) { arenas_.push_back(&arena); }
  void Remove(Arena& arena);
  void Added(Chunk& chunk);
  void Removed(std::unique_ptr<Chunk> chunk) { moves_.Forget(std::move(chunk)); }

  // Whether an arena may get `bytes` more as a chunk that is away: other tenants, or a claim for more than
  // the device has, are why there is no room on the device, and there is room in all.
  bool MayGrowAway(const Arena& arena, const Ledger::Share& share, uint64_t bytes) const;
  // Whether chunks could still change places if an arena got `bytes` more on the device.
  bool MayGrow(const Arena& arena, uint64_t bytes) const;
  // The device refused memory: it has no more than it has given, for a while.
  void DeviceIsFull();
  // As ChunkMoves::AwaitsPeers.
  bool AwaitsPeers() { return moves_.AwaitsPeers(); }
  // What the device has room for in all, as far as is known.
  uint64_t room() const { return room_; }
  // The same; a refusal of long ago does not count any more.
  uint64_t RoomNow();

  // One of the things that a command uses.
  struct Operand {
    const std::byte* address;
    bool writes;
  };
  // Whether a command of `user` may use these now. Then they stay until `mark` has completed. Otherwise they
  // are brought: ask again. Returns ResourceExhausted if they can never be there together.
  // REQUIRES: arena.is_watched(), and blocks of the arena have them.
  absl::StatusOr<bool> Hold(Arena& arena, const User& user, const Mark& mark,
                            std::span<const Operand> operands);
  // Whether all of these are on the device. Then they stay until `mark` has completed. Unlike Hold, brings
  // nothing, and is not a use that says when the next one will be. REQUIRES: as Hold; nothing is written.
  static bool HoldIfThere(Arena& arena, const User& user, const Mark& mark,
                          std::span<const std::byte* const> addresses);
  // A command that waits will use this, so many commands after the next one. A hint.
  void Expect(Arena& arena, const std::byte* address, uint64_t commands_ahead);

  // Starts and ends moves and turns. Call often.
  void Poll(uint64_t now_ns);
  // When Poll is due though nobody wakes the lane: it may give host memory back then. UINT64_MAX: never.
  uint64_t due_ns() const;
  // Whether memory moves, or somebody waits for it.
  bool is_under_way() const { return moves_.is_under_way() || waiting_; }

  const HostStore& store() const { return store_; }
  uint64_t turns() const { return turns_; }
  uint64_t turn_ns() const { return turn_ns_; }  // of the last one; 0: there are none now

 private:
  bool can_move() const { return store_.limit() != 0; }
  void StartWatching(Arena& arena);
  void StopWatching(Arena& arena);
  void LookAtWork();
  // From when on nothing has moved for long.
  uint64_t CalmNs() const;
  // Of the last second.
  void TakeRates();
  bool IsIdle(const Arena& arena) const;
  uint64_t GuaranteeOf(const Tenant& tenant) const;
  // What other tenants must be able to have at once.
  uint64_t PromisedToOthers(const Arena& arena) const;
  // What the arena could have on the device if all others had no more than they must.
  uint64_t MostFor(const Arena& arena) const;
  uint64_t LargestChunk() const;
  bool CanChangePlaces(const Arena& arena, uint64_t more) const;

  // Whether one command can use all of these at once.
  absl::Status CheckFits(const Arena& arena, std::span<const Operand> operands) const;
  void Want(Arena& arena, std::span<Chunk* const> missing);

  void Decide();
  std::vector<Arena*> InOrderOfTurns() const;
  // Whether it is larger than the device, so that its own chunks take turns.
  bool Exchanges(const Arena& arena) const { return arena.chunk_bytes() > MostFor(arena); }
  // Brings what the arena waits for, and what it will need. Returns whether it waits no more.
  bool Fetch(Arena& arena);
  std::vector<Chunk*> MissingOf(Arena& arena) const;
  void EndWait(Arena& arena);
  // What is free on the device for the arena.
  uint64_t FreeFor(const Arena& arena) const;
  // Has chunks leave for `missing`.
  void MakeRoom(Arena& arena, std::span<Chunk* const> missing);
  Chunk* ChooseVictim(Arena& arena, const Chunk& next);
  // Whether a command waits for it, in the turn of its tenant.
  static bool IsWanted(const Chunk& chunk);
  Chunk* LatestUsed(Arena& arena, bool only_cold, uint64_t not_before);
  bool IsTurnOver(const Arena& arena, const Arena& waiting) const;
  void Suspend(Arena& arena);
  // Has room in the host for what the chunk has. `arena` needs its place on the device.
  bool PrepareHost(Chunk& chunk, const Arena& arena);
  bool DropCopies(uint64_t bytes);

  // What must remain free in the host, so that what is in files can return.
  uint64_t KeptFree() const { return store_.files().used_bytes() == 0 ? 0 : HostSlots(LargestChunk()); }
  static uint64_t HostSlots(uint64_t bytes) { return HostStore::SlotBytesFor(bytes); }
  // Has so much of the host freed, for `arena`, soon.
  void FreeHost(uint64_t bytes, const Arena& arena);
  Chunk* LongestAway(const Arena& arena);
  // Has a chunk's contents come from its file, as a step of its return. Returns false if there is no room
  // now.
  bool Read(Chunk& chunk);

  executor::Device& device_;
  const Ledger& ledger_;
  const Arena::Totals& totals_;
  Options options_;
  std::function<PriorityClass(const Tenant&)> class_of_ = [](const Tenant&) {
    return PriorityClass::kInteractive;
  };
  HostStore store_;
  ChunkMoves moves_;
  std::vector<Arena*> arenas_;
  const Arena* served_ = nullptr;  // whose memory comes now, before anybody else's
  uint64_t room_;
  uint64_t full_since_ns_ = 0;  // of the last DeviceIsFull
  int watched_ = 0;             // arenas
  bool waiting_ = false;
  bool changed_ = false;  // since the last Decide
  uint64_t now_ns_ = 0, polled_ns_ = 0, decided_ns_ = 0, rated_ns_ = 0;
  uint64_t turns_ = 0, turn_ns_ = 0;
  uint64_t refused_ns_ = 0;
};

}  // namespace xpud::memory
