#include "daemon/memory/residency.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/memory/address_sanitizer.h"
#include "proto/base/check.h"
#include "proto/base/clock.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/status_macros.h"

namespace xpud::memory {
namespace {

constexpr uint64_t kMillisecond = 1'000'000, kSecond = 1000 * kMillisecond;
constexpr uint64_t kDecideNs = kMillisecond / 10;  // between two looks while somebody waits
constexpr uint64_t kLookNs = 2 * kMillisecond;     // and while nobody does
constexpr uint64_t kIdleNs = 100 * kMillisecond;   // without work for so long: idle
constexpr uint64_t kRestNs = 5 * kMillisecond;     // and so ends its turn
constexpr uint64_t kColdNs = kSecond;        // not used for so long: not part of what a tenant works with
constexpr uint64_t kCalmNs = 10 * kSecond;   // without a move for so long: nothing is watched any more
constexpr uint64_t kFullNs = kSecond;        // before the device is asked again for more than it had
constexpr uint64_t kAheadBytes = 256 << 20;  // leave ahead of what comes
// The length of a turn, by the time that its memory took to come: where another tenant computes meanwhile,
// and where the device would be idle.
constexpr uint64_t kExchangesBeside = 2, kExchangesAlone = 8;
constexpr uint64_t kMinTurnNs = 50 * kMillisecond;
// A higher class has more turns before a lower one gets its, which is as short as turns are.
constexpr uint64_t kHigherClassTurns = 8;
// A tenant that exchanges its own chunks brings those that are used within this part of its cycle.
constexpr uint64_t kCyclePart = 8;
constexpr uint64_t kReadyBytes = 512 << 20;  // of the host, before they are needed
// What must be free of the device, host and files together, in largest chunks, so that any chunk in a file
// can return: the kept part of the host; the file's part of the chunk that returns, which it still has; less
// than one on the device; less than two in the host, before another leaves; and then one in the files.
constexpr uint64_t kFreeWithFiles = 5;
// And of the host in all: the kept part, the chunk that returns, and the one that leaves for it.
constexpr uint64_t kMinHost = 3;

bool IsHigher(PriorityClass a, PriorityClass b) { return a < b; }

}  // namespace

Residency::Residency(executor::Device& device, const Ledger& ledger, const Arena::Totals& totals,
                     Options options)
    : device_(device),
      ledger_(ledger),
      totals_(totals),
      options_(std::move(options)),
      store_(device, device.mover() == nullptr ? 0 : options_.host_limit, options_.files, options_.wake),
      moves_(device.mover(), store_,
             {.on_full = [this] { DeviceIsFull(); },
              .on_trouble = [this](const absl::Status& trouble) { options_.on_trouble(trouble); }}),
      room_(device.properties().total_memory) {}

Residency::~Residency() { XPUD_CHECK(arenas_.empty()); }

// ---- what there is

void Residency::Remove(Arena& arena) {
  std::erase(arenas_, &arena);
  if (arena.is_watched()) --watched_;
  if (served_ == &arena) served_ = nullptr;
}

void Residency::Added(Chunk& chunk) {
  if (chunk.place != Chunk::Place::kAway && !chunk.arena->is_watched()) return;
  if (!chunk.arena->is_watched()) StartWatching(*chunk.arena);
  chunk.last_use_ns = now_ns_;
}

uint64_t Residency::LargestChunk() const {
  uint64_t largest = 0;
  for (const Arena* const arena : arenas_) {
    for (const auto& [address, chunk] : arena->chunks()) largest = std::max(largest, chunk->bytes());
  }
  return largest;
}

// The largest chunk can always change places with `more` bytes more. Without files, what is free on the
// device and in the host is twice as much, so one of the two has room for it.
bool Residency::CanChangePlaces(const Arena& arena, uint64_t more) const {
  const uint64_t largest = HostSlots(std::max(more, LargestChunk()));
  uint64_t taken = HostSlots(more);
  for (const Arena* const each : arenas_) {
    for (const auto& [address, chunk] : each->chunks()) taken += HostSlots(chunk->bytes());
  }
  const uint64_t beside_files = room_ - std::min(room_, PromisedToOthers(arena)) + store_.limit();
  const FileStore& files = store_.files();
  if (files.used_bytes() == 0 && taken + 2 * largest <= beside_files) return true;
  if (files.limit() == 0 || moves_.FilesAreFull() || kMinHost * largest > store_.limit()) return false;
  return taken + kFreeWithFiles * largest <= beside_files + files.limit();
}

bool Residency::MayGrow(const Arena& arena, uint64_t bytes) const {
  return !can_move() || totals_.chunk_bytes + bytes <= room_ || CanChangePlaces(arena, bytes);
}

bool Residency::MayGrowAway(const Arena& arena, const Ledger::Share& share, uint64_t bytes) const {
  if (!can_move() || !CanChangePlaces(arena, bytes)) return false;
  const uint64_t own = std::max(room_, share.quota.value_or(0));
  return arena.chunk_bytes() + bytes <= own && bytes <= MostFor(arena);
}

void Residency::DeviceIsFull() {
  room_ = std::min(room_, totals_.on_device + moves_.forgotten_bytes());
  full_since_ns_ = NowNs();
}

uint64_t Residency::RoomNow() {
  const uint64_t all = device_.properties().total_memory;
  if (room_ < all && NowNs() - full_since_ns_ > kFullNs) room_ = all;
  return room_;
}

uint64_t Residency::GuaranteeOf(const Tenant& tenant) const {
  const auto share = ledger_.tenants().find(tenant);
  return share == ledger_.tenants().end() ? 0 : share->second.guarantee;
}

uint64_t Residency::PromisedToOthers(const Arena& arena) const {
  uint64_t promised = 0;
  for (const auto& [tenant, share] : ledger_.tenants()) {
    if (share.guarantee == 0 || tenant == arena.tenant()) continue;
    const auto has =
        std::ranges::find_if(arenas_, [&](const Arena* each) { return each->tenant() == tenant; });
    const uint64_t there = has == arenas_.end() ? 0 : (*has)->on_device();
    promised += share.guarantee - std::min(share.guarantee, there);
  }
  return promised;
}

uint64_t Residency::MostFor(const Arena& arena) const {
  uint64_t others = 0;
  for (const auto& [tenant, share] : ledger_.tenants()) {
    if (tenant != arena.tenant()) others += share.guarantee;
  }
  return room_ - std::min(room_, others);
}

uint64_t Residency::FreeFor(const Arena& arena) const {
  const uint64_t taken = totals_.on_device + moves_.forgotten_bytes() + PromisedToOthers(arena);
  return room_ - std::min(room_, taken);
}

// ---- what commands use

void Residency::StartWatching(Arena& arena) {
  Arena::Watch& watch = arena.watch();
  if (watch.on) return;
  watch.on = true;
  watch.moved_before = arena.moved();
  ++watched_;
  for (User* const user : arena.users()) {
    for (const Mark& mark : user->Unfinished()) watch.earlier.push_back({user, mark});
  }
  for (const auto& [address, chunk] : arena.chunks()) {
    AllowAccess(chunk->memory->address(), chunk->bytes());  // chunks are copied whole, with what is free
    chunk->changed = chunk->place == Chunk::Place::kDevice;
    chunk->last_use_ns = now_ns_;
  }
}

void Residency::StopWatching(Arena& arena) {
  for (const auto& [address, chunk] : arena.chunks()) {
    store_.Return(std::exchange(chunk->host, {}));
    chunk->uses.clear();
  }
  arena.watch() = {};
  arena.moved().in_per_s = arena.moved().out_per_s = 0;
  --watched_;
}

absl::StatusOr<bool> Residency::Hold(Arena& arena, const User& user, const Mark& mark,
                                     std::span<const Operand> operands) {
  Arena::Watch& watch = arena.watch();
  bool there = !watch.is_suspended;
  std::vector<Chunk*> missing;
  for (const Operand& operand : operands) {
    Chunk& chunk = arena.ChunkOf(reinterpret_cast<uint64_t>(operand.address));
    if (chunk.place == Chunk::Place::kDevice || (!watch.is_suspended && moves_.Keep(chunk))) continue;
    if (chunk.is_lost) {
      return absl::DataLossError(
          "what the command uses was moved out of the device to a file, which can no longer be read");
    }
    there = false;
    if (std::ranges::find(watch.wanted, &chunk) == watch.wanted.end() &&
        std::ranges::find(missing, &chunk) == missing.end())
      missing.push_back(&chunk);
  }
  if (there) {
    ++watch.commands;
    for (const Operand& operand : operands) {
      Chunk& chunk = arena.ChunkOf(reinterpret_cast<uint64_t>(operand.address));
      chunk.changed |= operand.writes;
      chunk.Used(watch.commands);
      std::erase(watch.wanted, &chunk);
      chunk.last_use_ns = now_ns_;
      chunk.UsedBy(user, mark);
    }
    return true;
  }
  if (watch.waits_since_ns == 0) watch.waits_since_ns = now_ns_;
  waiting_ = true;
  RETURN_IF_ERROR(CheckFits(arena, operands));
  Want(arena, missing);
  return false;
}

bool Residency::HoldIfThere(Arena& arena, const User& user, const Mark& mark,
                            std::span<const std::byte* const> addresses) {
  const auto chunk_of = [&](const std::byte* address) -> Chunk& {
    return arena.ChunkOf(reinterpret_cast<uint64_t>(address));
  };
  const auto is_there = [&](const std::byte* address) {
    return chunk_of(address).place == Chunk::Place::kDevice;
  };
  if (arena.watch().is_suspended || !std::ranges::all_of(addresses, is_there)) return false;
  for (const std::byte* const address : addresses) chunk_of(address).UsedBy(user, mark);
  return true;
}

// What one command lacks is wanted as a whole, beside what others want, or not yet.
void Residency::Want(Arena& arena, std::span<Chunk* const> missing) {
  Arena::Watch& watch = arena.watch();
  const auto sum = [](std::span<Chunk* const> chunks) {
    return std::accumulate(chunks.begin(), chunks.end(), uint64_t{0},
                           [](uint64_t bytes, const Chunk* chunk) { return bytes + chunk->bytes(); });
  };
  if (missing.empty() || (!watch.wanted.empty() && sum(watch.wanted) + sum(missing) > MostFor(arena))) return;
  for (Chunk* const chunk : missing) {
    watch.wanted.push_back(chunk);
    chunk->Missed(watch.commands + 1);
  }
  changed_ = true;
}

absl::Status Residency::CheckFits(const Arena& arena, std::span<const Operand> operands) const {
  std::vector<const Chunk*> chunks;
  for (const Operand& operand : operands)
    chunks.push_back(&arena.ChunkOf(reinterpret_cast<uint64_t>(operand.address)));
  std::ranges::sort(chunks);
  const auto again = std::ranges::unique(chunks);
  chunks.erase(again.begin(), again.end());
  uint64_t all = 0;
  for (const Chunk* const chunk : chunks) all += chunk->bytes();
  const uint64_t most = MostFor(arena);
  if (all <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(kOutOfMemoryOpening, "What the command uses lies in ", BytesText(all),
                   " of device memory, which must be there at once; at most ", BytesText(most), " can be."));
}

void Residency::Expect(Arena& arena, const std::byte* address, uint64_t commands_ahead) {
  Chunk& chunk = arena.ChunkOf(reinterpret_cast<uint64_t>(address));
  chunk.expected = std::min(chunk.expected, arena.watch().commands + 1 + commands_ahead);
}

// ---- who is where

void Residency::LookAtWork() {
  for (Arena* const arena : arenas_) {
    Arena::Watch& watch = arena->watch();
    watch.priority = class_of_(arena->tenant());
    watch.is_at_work = std::ranges::any_of(arena->users(), [](const User* user) { return user->IsAtWork(); });
    if (watch.is_at_work) watch.last_work_ns = now_ns_;
  }
}

bool Residency::IsIdle(const Arena& arena) const {
  const Arena::Watch& watch = arena.watch();
  return !watch.is_at_work && now_ns_ - watch.last_work_ns >= kIdleNs;
}

void Residency::Poll(uint64_t now_ns) {
  if (!can_move()) return;
  store_.Poll();
  polled_ns_ = now_ns;
  if (watched_ == 0) {
    if (now_ns >= CalmNs()) store_.Shrink();
    return;
  }
  moves_.SetNow(now_ns);
  if (now_ns - std::exchange(now_ns_, now_ns) > kSecond) {  // nobody looked meanwhile
    for (Arena* const arena : arenas_) {
      arena->watch().last_work_ns = now_ns;
      for (const auto& [address, chunk] : arena->chunks()) chunk->last_use_ns = now_ns;
    }
  }
  if (now_ns - rated_ns_ >= kSecond) TakeRates();
  changed_ |= moves_.TakeEnded();
  if (!changed_ && now_ns - decided_ns_ < (is_under_way() ? kDecideNs : kLookNs)) return;
  decided_ns_ = now_ns;
  changed_ = false;
  LookAtWork();
  if (!moves_.IsPausing()) Decide();
}

uint64_t Residency::CalmNs() const { return moves_.last_ns() + kCalmNs; }

uint64_t Residency::due_ns() const {
  return store_.taken_bytes() != 0 && polled_ns_ < CalmNs() ? CalmNs() : UINT64_MAX;
}

void Residency::TakeRates() {
  const double seconds = static_cast<double>(now_ns_ - std::exchange(rated_ns_, now_ns_)) / kSecond;
  for (Arena* const arena : arenas_) {
    MovedBytes& moved = arena->moved();
    const MovedBytes before = std::exchange(arena->watch().moved_before, moved);
    moved.in_per_s = static_cast<uint64_t>(static_cast<double>(moved.in - before.in) / seconds);
    moved.out_per_s = static_cast<uint64_t>(static_cast<double>(moved.out - before.out) / seconds);
  }
}

std::vector<Arena*> Residency::InOrderOfTurns() const {
  std::vector<Arena*> waiting;
  for (Arena* const arena : arenas_) {
    Arena::Watch& watch = arena->watch();
    const bool waits = watch.waits_since_ns != 0 && (watch.is_at_work || !watch.is_suspended);
    if (watch.wanted.empty() && !waits) continue;
    if (watch.waits_since_ns == 0) watch.waits_since_ns = now_ns_;
    waiting.push_back(arena);
  }
  // Others may have been suspended for the one whose turn began.
  std::ranges::sort(waiting, {}, [&](const Arena* arena) {
    return std::tuple(arena != served_, arena->watch().priority, arena->watch().waits_since_ns,
                      arena->tenant());
  });
  return waiting;
}

void Residency::Decide() {
  RoomNow();
  if (totals_.chunk_bytes > room_) store_.Prepare(kReadyBytes);
  const std::vector<Arena*> waiting = InOrderOfTurns();
  waiting_ = !waiting.empty();
  served_ = nullptr;
  for (Arena* const arena : waiting) {
    if (Fetch(*arena)) continue;
    served_ = arena;  // the others come after it
    break;
  }
  if (served_ == nullptr) {
    for (Arena* const arena : arenas_) {
      if (arena->is_watched() && arena->watch().is_at_work && Exchanges(*arena)) Fetch(*arena);
    }
  }
  if (waiting_ || is_under_way() || now_ns_ < CalmNs()) return;
  turn_ns_ = 0;
  for (Arena* const arena : arenas_) {
    if (arena->is_watched() && arena->on_device() == arena->chunk_bytes()) StopWatching(*arena);
  }
  store_.Shrink();
}

std::vector<Chunk*> Residency::MissingOf(Arena& arena) const {
  const Arena::Watch& watch = arena.watch();
  std::vector<Chunk*> missing;
  for (Chunk* const chunk : watch.wanted) {
    if (chunk->place != Chunk::Place::kDevice) missing.push_back(chunk);
  }
  const size_t wanted = missing.size();
  const bool exchanges = Exchanges(arena);
  for (const auto& [address, each] : arena.chunks()) {
    Chunk* const chunk = each.get();
    if (chunk->place == Chunk::Place::kDevice || chunk->is_lost ||
        std::ranges::find(missing, chunk) != missing.end())
      continue;
    const bool soon = chunk->IsExpected(watch.commands) ||
                      chunk->NextUse(watch.commands) - watch.commands <= chunk->period / kCyclePart;
    if (exchanges ? soon : soon || chunk->comes_back) missing.push_back(chunk);
  }
  std::ranges::sort(missing.begin() + static_cast<ptrdiff_t>(wanted), missing.end(), {},
                    [&](const Chunk* chunk) {
                      return std::tuple(chunk->NextUse(watch.commands), chunk->last_use, chunk->begin());
                    });
  return missing;
}

bool Residency::Fetch(Arena& arena) {
  Arena::Watch& watch = arena.watch();
  StartWatching(arena);
  watch.is_suspended = false;
  const uint64_t since_ns = now_ns_ - std::exchange(watch.fetched_ns, now_ns_);
  // While others keep their turn, nothing moves.
  if (moves_.moves_in() + moves_.moves_out() > 0) watch.exchange_ns += std::min(since_ns, kLookNs);
  const std::vector<Chunk*> missing = MissingOf(arena);
  moves_.SetNeeded(missing.empty() ? nullptr : missing.front());
  for (Chunk* const chunk : Exchanges(arena) ? watch.wanted : missing) moves_.Keep(*chunk);
  MakeRoom(arena, missing);
  bool all = true;
  uint64_t from_files = 0;  // these come before what follows them
  for (Chunk* const chunk : missing) {
    if (chunk->place == Chunk::Place::kDevice) continue;
    all = false;
    if (chunk->place != Chunk::Place::kAway) continue;
    if (chunk->is_in_file()) {
      if (!Read(*chunk)) break;
      from_files += chunk->bytes();
      continue;
    }
    if (moves_.moves_in() >= ChunkMoves::kMost || FreeFor(arena) < from_files + chunk->bytes()) break;
    moves_.StartReturn(*chunk);
  }
  // An arena that exchanges its chunks waits only for those that commands wait for.
  const bool done = all || (Exchanges(arena) && std::ranges::all_of(watch.wanted, [](const Chunk* chunk) {
                              return chunk->place == Chunk::Place::kDevice;
                            }));
  if (done) EndWait(arena);
  return done;
}

void Residency::EndWait(Arena& arena) {
  Arena::Watch& watch = arena.watch();
  watch.wanted.clear();
  const uint64_t exchange_ns = std::exchange(watch.exchange_ns, 0);
  if (std::exchange(watch.waits_since_ns, 0) == 0) return;
  if (now_ns_ < watch.turn_ends_ns) return;  // it waited in its turn, which is no longer for that
  const bool beside = std::ranges::any_of(arenas_, [&](Arena* other) {
    return other != &arena && other->watch().is_at_work && !other->watch().is_suspended;
  });
  watch.turn_ns = std::min(std::max(exchange_ns * (beside ? kExchangesBeside : kExchangesAlone), kMinTurnNs),
                           options_.turn_limit_ns);
  watch.turn_ends_ns = now_ns_ + watch.turn_ns;
  ++turns_;
  turn_ns_ = watch.turn_ns;
}

// ---- who leaves

bool Residency::IsTurnOver(const Arena& arena, const Arena& waiting) const {
  const Arena::Watch& watch = arena.watch();
  const PriorityClass priority = waiting.watch().priority;
  if (watch.is_suspended || (!watch.is_at_work && now_ns_ - watch.last_work_ns >= kRestNs)) return true;
  uint64_t ends_ns = watch.turn_ends_ns;
  if (IsHigher(priority, watch.priority)) ends_ns -= watch.turn_ns - std::min(watch.turn_ns, kMinTurnNs);
  if (IsHigher(watch.priority, priority)) ends_ns += kHigherClassTurns * watch.turn_ns;
  return now_ns_ >= ends_ns;
}

void Residency::Suspend(Arena& arena) {
  Arena::Watch& watch = arena.watch();
  if (watch.is_suspended || !watch.is_at_work) return;
  watch.is_suspended = true;
  watch.turn_ends_ns = now_ns_;
  watch.waits_since_ns = now_ns_;
  watch.exchange_ns = 0;
}

// Of chunks that may leave. `not_before`: those with a later next use.
Chunk* Residency::LatestUsed(Arena& arena, bool only_cold, uint64_t not_before) {
  Arena::Watch& watch = arena.watch();
  std::erase_if(watch.earlier, [](const Chunk::Use& use) { return use.user->HasCompleted(use.mark); });
  if (!watch.earlier.empty()) return nullptr;
  Chunk* latest = nullptr;
  uint64_t latest_use = 0;
  for (const auto& [address, each] : arena.chunks()) {
    Chunk& chunk = *each;
    if (chunk.place != Chunk::Place::kDevice || chunk.is_moving() || chunk.loans != 0 ||
        (only_cold && now_ns_ - chunk.last_use_ns < kColdNs))
      continue;
    const uint64_t next = chunk.NextUse(watch.commands);
    if (next <= not_before || chunk.IsInUse() || IsWanted(chunk)) continue;
    if (latest != nullptr && std::pair(next, latest->last_use_ns) <= std::pair(latest_use, chunk.last_use_ns))
      continue;
    latest = &chunk;
    latest_use = next;
  }
  return latest;
}

bool Residency::IsWanted(const Chunk& chunk) {
  const Arena::Watch& watch = chunk.arena->watch();
  return !watch.is_suspended && std::ranges::find(watch.wanted, &chunk) != watch.wanted.end();
}

Chunk* Residency::ChooseVictim(Arena& arena, const Chunk& next) {
  std::vector<Arena*> others;
  for (Arena* const other : arenas_) {
    if (other == &arena || other->on_device() == 0) continue;
    StartWatching(*other);
    others.push_back(other);
  }
  // Lower classes first, then who was idle for longest.
  std::ranges::sort(others, {}, [&](const Arena* other) {
    return std::tuple(-static_cast<int>(other->watch().priority), other->watch().last_work_ns,
                      other->tenant());
  });
  const auto may_give = [&](const Arena& other, const Chunk* chunk) {
    return chunk != nullptr && other.on_device() - chunk->bytes() >= GuaranteeOf(other.tenant());
  };
  for (const bool cold : {false, true}) {
    for (Arena* const other : others) {
      if (!cold && !IsIdle(*other)) continue;
      if (Chunk* const chunk = LatestUsed(*other, cold, 0); may_give(*other, chunk)) return chunk;
    }
  }
  const uint64_t next_use = next.NextUse(arena.watch().commands);
  if (Chunk* const chunk = LatestUsed(arena, /*only_cold=*/true, next_use); chunk != nullptr) return chunk;
  if (Exchanges(arena)) return LatestUsed(arena, /*only_cold=*/false, next_use);
  // Tenants at work. One is suspended at a time: what it still has under way ends first.
  std::ranges::sort(others, {}, [](const Arena* other) {
    return std::tuple(!other->watch().is_suspended, other->watch().turn_ends_ns, other->tenant());
  });
  for (Arena* const other : others) {
    if (!IsTurnOver(*other, arena) || other->on_device() <= GuaranteeOf(other->tenant())) continue;
    Suspend(*other);
    Chunk* const chunk = LatestUsed(*other, /*only_cold=*/false, 0);
    if (may_give(*other, chunk)) return chunk;
    const bool drains = std::ranges::any_of(other->chunks(), [](const auto& each) {
      return each.second->place == Chunk::Place::kDevice && each.second->IsInUse();
    });
    if (drains || !other->watch().earlier.empty()) return nullptr;
  }
  return nullptr;
}

void Residency::MakeRoom(Arena& arena, std::span<Chunk* const> missing) {
  uint64_t needed = 0;
  for (const Chunk* const chunk : missing) {
    if (chunk->place == Chunk::Place::kAway && (needed == 0 || needed + chunk->bytes() <= kAheadBytes))
      needed += chunk->bytes();
  }
  const auto first = std::ranges::find(missing, Chunk::Place::kAway, &Chunk::place);
  if (first == missing.end()) return;
  while (moves_.moves_out() < ChunkMoves::kMost && FreeFor(arena) + moves_.leaving_bytes() < needed) {
    Chunk* const victim = ChooseVictim(arena, **first);
    if (victim == nullptr || !PrepareHost(*victim, arena)) return;
    moves_.StartLeave(*victim, /*comes_back=*/victim->arena != &arena);
  }
}

bool Residency::PrepareHost(Chunk& chunk, const Arena& arena) {
  if (!chunk.changed || !chunk.host.empty()) return true;
  auto parts = store_.Take(chunk.bytes(), KeptFree());
  if (!parts) {
    FreeHost(HostSlots(chunk.bytes()) + KeptFree(), arena);
    return false;
  }
  chunk.host = *std::move(parts);
  return true;
}

void Residency::FreeHost(uint64_t bytes, const Arena& arena) {
  const bool has_trouble = !store_.trouble().ok();
  if (store_.taken_bytes() < store_.limit() && !has_trouble) return;  // more is taken
  if (DropCopies(bytes)) return;                                      // they are cleared first
  if (has_trouble) moves_.Note(store_.trouble());
  if (store_.is_busy() || moves_.FilesAreFull()) return;
  while (store_.free_bytes() + moves_.writing_bytes() < bytes && moves_.writes() < ChunkMoves::kMost) {
    Chunk* const chunk = LongestAway(arena);
    if (chunk == nullptr) return;
    auto slots = store_.files().Take(chunk->host.size());
    if (!slots) return;
    moves_.StartWrite(*chunk, *std::move(slots));
  }
}

// The first one to go to files: of a tenant that needs room itself only if no other has any, and then, or if
// a tenant exchanges its chunks, the latest next use first.
Chunk* Residency::LongestAway(const Arena& arena) {
  const auto may_go = [&](const Chunk& chunk) {
    return chunk.place == Chunk::Place::kAway && !chunk.host.empty() && chunk.file.empty() &&
           !chunk.is_moving() && !moves_.IsNeeded(chunk);
  };
  Chunk* first = nullptr;
  for (Arena* const each : arenas_) {
    const auto order = [&](const Chunk& chunk) { return std::pair(chunk.arena == &arena, chunk.left_ns); };
    for (const auto& [address, chunk] : each->chunks()) {
      if (may_go(*chunk) && (first == nullptr || order(*chunk) < order(*first))) first = chunk.get();
    }
  }
  if (first == nullptr || (first->arena != &arena && !Exchanges(*first->arena))) return first;
  const uint64_t now = first->arena->watch().commands;
  for (const auto& [address, chunk] : first->arena->chunks()) {
    if (may_go(*chunk) && chunk->NextUse(now) > first->NextUse(now)) first = chunk.get();
  }
  return first;
}

bool Residency::Read(Chunk& chunk) {
  if (chunk.filing == Chunk::Filing::kReading || now_ns_ < chunk.read_after_ns) return true;
  if (moves_.reads() >= ChunkMoves::kMost) return false;
  const bool needed = moves_.IsNeeded(chunk);
  auto parts = store_.Take(chunk.bytes(), needed ? 0 : KeptFree());
  if (!parts) {
    if (needed) FreeHost(HostSlots(chunk.bytes()), *chunk.arena);
    return false;
  }
  moves_.StartRead(chunk, *std::move(parts));
  return true;
}

// Returns copies of what is on the device, or in files.
bool Residency::DropCopies(uint64_t bytes) {
  uint64_t dropped = 0;
  for (const bool changed : {true, false}) {
    for (Arena* const arena : arenas_) {
      for (const auto& [address, chunk] : arena->chunks()) {
        if (dropped >= bytes) return true;
        if (chunk->is_in_both() && !moves_.IsNeeded(*chunk) && chunk->place == Chunk::Place::kAway) {
          dropped += HostSlots(chunk->bytes());
          store_.Return(std::exchange(chunk->host, {}));
        }
        if (chunk->place != Chunk::Place::kDevice || chunk->is_moving() || chunk->host.empty() ||
            chunk->changed != changed)
          continue;
        dropped += HostStore::SlotBytesFor(chunk->bytes());
        store_.Return(std::exchange(chunk->host, {}));
        chunk->changed = true;
      }
    }
  }
  return dropped != 0;
}

void Residency::Refused(const absl::Status& why) {
  const uint64_t now = NowNs();
  if (now - std::exchange(refused_ns_, now) >= kSecond) options_.on_refusal(why);
}

}  // namespace xpud::memory
