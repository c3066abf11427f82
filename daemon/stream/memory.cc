#include "daemon/stream/memory.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/round_size.h"
#include "proto/base/status_macros.h"

namespace xpud::stream {
namespace {

// Credit beyond what a session asks for: a part of what it holds.
constexpr uint64_t kAheadPart = 8;
constexpr uint64_t kMinAheadBytes = 4 << 20;
constexpr uint64_t kMaxAheadBytes = 512 << 20;

}  // namespace

Memory::Memory(DeviceState& state, uint32_t device, const Tenant& tenant, memory::User& user,
               transport::ServerTransport& transport, QueueTable& queues, Announcer& announcer,
               const Rerun& rerun, const uint64_t& busy_queues, const Lends& lends)
    : state_(state),
      device_(device),
      transport_(transport),
      queues_(queues),
      announcer_(announcer),
      rerun_(rerun),
      busy_queues_(busy_queues),
      lends_(lends),
      user_(user),
      account_(state.pool->Open(tenant, transport.CreditWord(), transport.ClaimWord())) {
  account_.arena->AddUser(user_);
}

Memory::~Memory() {
  for (const Parting& parting : partings_) state_.pool->Free(parting.own);
  for (const Deferred& entry : deferred_) Release(entry);
  account_.arena->RemoveUser(user_);
  state_.pool->Close(account_);
}

void Memory::Charge(int64_t bytes) {
  allocated_ += static_cast<uint64_t>(bytes);
  peak_ = std::max(peak_, allocated_bytes());
  transport_.SetAllocatedBytes(allocated_);
}

void Memory::SetAttached(uint64_t bytes) {
  memory::Ledger::SetAttached(account_, bytes);
  peak_ = std::max(peak_, allocated_bytes());
}

void Memory::Shared(const memory::Block& block) {
  SetAttached(account_.attached() + block.bytes);
  Charge(-static_cast<int64_t>(block.bytes));
}

std::optional<MemoryShortage> Memory::Attach(const memory::SharedAllocation& allocation) {
  const uint64_t bytes = allocation.block.bytes;
  if (auto shortage = memory::Ledger::ShortOfOwn(account_, bytes)) return shortage;
  SetAttached(account_.attached() + bytes);
  return std::nullopt;
}

void Memory::Drop(const handles::Buffer& buffer) {
  if (buffer.own.is_shared) {
    state_.shared->Drop(*buffer.own.block.shared);
  } else if (buffer.own.block.address != nullptr) {
    state_.pool->Free(buffer.own.block);
  }
}

bool Memory::IsUnfinished(uint64_t queues, uint64_t sequence) {
  bool unfinished = false;
  queues_.ForEach(queues, [&](Queue& queue) {
    const uint64_t completed = queue.completion->completed();
    unfinished |= completed < sequence && completed < queue.completion->submitted();
  });
  return unfinished;
}

void Memory::SpoilUnfinished(handles::BufferTable& buffers, uint64_t queues, memory::Fault fault) {
  buffers.ForEach([&](handles::Buffer& buffer) {
    if (buffer.own.is_shared && IsUnfinished(buffer.queues & queues, buffer.last_write))
      buffers.Spoil(buffer.allocation(), fault);
  });
  for (const Deferred& entry : deferred_) {
    if (entry.shared != nullptr && IsUnfinished(entry.queues & queues, entry.last_write))
      buffers.Spoil(*entry.shared, fault);
  }
}

absl::StatusOr<memory::Block> Memory::Allocate(Queue& queue, uint64_t sequence, uint64_t bytes) {
  memory::Ledger& ledger = state_.pool->ledger();
  const uint64_t capacity = ledger.capacity();
  if (bytes > capacity) return OutOfMemory(bytes, device_, capacity, state_.pool->ShortageFor(account_));
  const uint64_t wanted = allocated_ + RoundSize(bytes);
  const uint64_t more = wanted - std::min(wanted, account_.credit());
  if (more > 0) {
    if (const auto shortage = ledger.ShortOf(account_, more))
      return OutOfMemory(bytes, device_, capacity, *shortage);
  }
  ASSIGN_OR_RETURN(const memory::Block block, Take(queue, sequence, bytes));
  if (more > 0) ledger.Give(account_, more);
  Charge(static_cast<int64_t>(block.bytes));
  return block;
}

absl::StatusOr<memory::Block> Memory::Take(Queue& queue, uint64_t sequence, uint64_t bytes) {
  if (auto reused = queue.completion->Reuse(RoundSize(bytes), rerun_.ReuseFence(queue))) {
    reused->born = sequence;
    return *reused;
  }
  absl::StatusOr<memory::Block> block = state_.pool->Allocate(bytes, account_);
  if (absl::IsResourceExhausted(block.status())) {
    // What is free may only wait for the device to report it.
    RETURN_IF_ERROR(announcer_.Announce());
    ReleaseDeferred();
    const bool awaits_copies = !lends_.empty() && has_deferred();
    if (busy_queues_ != 0 || awaits_copies) return absl::UnavailableError("memory may become free");
    block = state_.pool->Allocate(bytes, account_);
  }
  if (block.ok()) block->born = sequence;
  return block;
}

absl::StatusOr<bool> Memory::Hold(const Queue& queue, uint64_t sequence,
                                  std::span<const memory::Residency::Operand> blocks) {
  const auto held = state_.pool->residency().Hold(*account_.arena, user_, {queue.id, sequence}, blocks);
  if (held.ok() && !*held) {
    if (holds_since_ns_ == 0) holds_since_ns_ = NowNs();
  } else if (holds_since_ns_ != 0) {
    account_.arena->stalls().Add(NowNs() - std::exchange(holds_since_ns_, 0));
  }
  return held;
}

absl::StatusOr<memory::Chunk*> Memory::Export(const memory::Block& block) {
  memory::Chunk& chunk = account_.arena->ChunkOf(reinterpret_cast<uint64_t>(block.address));
  if (chunk.exported == nullptr) {
    ASSIGN_OR_RETURN(UniqueFd fd, state_.device->ExportMemory(*chunk.memory));
    chunk.exported = std::make_shared<memory::ExportedMemory>(std::move(fd), chunk.bytes());
  }
  return &chunk;
}

bool Memory::IsLent(const Deferred& entry) const {
  const memory::Block& block = entry.shared != nullptr ? entry.shared->block : entry.block;
  return !lends_.empty() && block.address != nullptr && lends_.IsLent(block.address, block.bytes);
}

void Memory::Free(const handles::Buffer& buffer) {
  const memory::Block& block = buffer.own.block;
  if (block.address == nullptr) return;
  const uint64_t queues = buffer.queues & queues_.open();
  const bool is_lent = !lends_.empty() && lends_.IsLent(block.address, block.bytes);
  if (buffer.own.is_shared) [[unlikely]] {
    SetAttached(account_.attached() - block.bytes);
    if (queues == 0 && !is_lent) return state_.shared->Drop(*block.shared);
    return Defer({{}, block.shared, nullptr, buffer.last_write, queues, {}});
  }
  Charge(-static_cast<int64_t>(block.bytes));
  if (buffer.own.is_merged) [[unlikely]] {
    CountMerged(-static_cast<int64_t>(block.bytes));
    // Not to Retire: the queue must not get it for its next buffer, while others read it.
    if (queues != 0) return Defer({block, nullptr, nullptr, 0, queues, {}});
  }
  if (queues == 0 && !is_lent) return state_.pool->Free(block);
  if (is_lent || !std::has_single_bit(queues)) return Defer({block, nullptr, nullptr, 0, queues, {}});
  Completion& completion = *queues_[static_cast<uint32_t>(std::countr_zero(queues))].completion;
  completion.Retire(block, completion.submitted());
}

void Memory::Defer(uint64_t queues, std::shared_ptr<handles::DeviceHostMemories::Access> host) {
  Defer({{}, nullptr, std::move(host), 0, queues, {}});
}

void Memory::Defer(Deferred entry, const Queue* queue, uint64_t sequence) {
  queues_.ForEach(entry.queues, [&](Queue& each) { entry.marks[each.id] = each.completion->submitted(); });
  if (queue != nullptr) entry.marks[queue->id] = sequence;
  deferred_.push_back(std::move(entry));
}

bool Memory::IsSettled(const handles::Buffer& buffer) {
  const bool is_copied = std::ranges::any_of(
      copying_, [&](const Copying& copying) { return copying.buffer == &buffer && !HasEnded(copying); });
  return !is_copied && buffer.own.block.address != nullptr && buffer.own.written && !buffer.own.is_shared &&
         buffer.own.poison == memory::Poison::kNone && !IsBeingWritten(buffer);
}

void Memory::Merged(handles::Buffer& buffer, const std::optional<memory::Block>& former) {
  if (!buffer.own.is_merged) CountMerged(static_cast<int64_t>(buffer.own.block.bytes));
  buffer.own.is_merged = true;
  if (!former) return;
  const uint64_t queues = buffer.queues & queues_.open();
  const bool is_lent = !lends_.empty() && lends_.IsLent(former->address, former->bytes);
  if (is_lent || IsUnfinished(queues, UINT64_MAX))
    Defer({*former, nullptr, nullptr, 0, queues, {}});
  else
    state_.pool->Free(*former);
}

void Memory::CountMerged(int64_t bytes) {
  merged_bytes_ += static_cast<uint64_t>(bytes);
  has_merged_ = merged_bytes_ != 0 || !copying_.empty();
}

bool Memory::HasEnded(const Copying& copying) const {
  return !queues_.IsOpen(copying.queue) || queues_[copying.queue].completion->completed() >= copying.sequence;
}

absl::StatusOr<bool> Memory::AwaitsCopy(const handles::Buffer& buffer, const Queue& queue) {
  for (const Copying& copying : copying_) {
    if (copying.buffer != &buffer || copying.queue == queue.id || HasEnded(copying)) continue;
    RETURN_IF_ERROR(announcer_.Announce());
    if (!HasEnded(copying)) return true;
  }
  return false;
}

absl::Status Memory::TakeOwn(Queue& queue, uint64_t sequence, handles::Buffer& buffer, bool fills) {
  if (!buffer.own.is_merged) return absl::OkStatus();
  if (state_.pool->EndMerge(buffer.own.block)) {
    buffer.own.is_merged = false;
    CountMerged(-static_cast<int64_t>(buffer.own.block.bytes));
    return absl::OkStatus();
  }
  const auto is_it = [&](const Parting& parting) { return parting.buffer == &buffer; };
  if (std::ranges::any_of(partings_, is_it)) return absl::OkStatus();
  absl::StatusOr<memory::Block> own = Take(queue, sequence, buffer.own.block.bytes);
  if (!own.ok()) {
    ForgetPartings(queue, sequence);
    return own.status();
  }
  partings_.push_back({&buffer, *own, !fills});
  return absl::OkStatus();
}

void Memory::ForgetPartings(Queue& queue, uint64_t sequence) {
  for (const Parting& parting : partings_) queue.completion->Retire(parting.own, sequence);
  partings_.clear();
}

// The memory of the former blocks stays as it is until the copies have ended, so these may run again. What is
// known of the last commands that used a buffer stays, too: an update of it is one in place.
absl::Status Memory::Part(Queue& queue, uint64_t sequence) {
  if (partings_.empty()) [[likely]]
    return absl::OkStatus();
  copied_for_ = sequence;
  for (const Parting& parting : partings_) {
    if (!parting.copies) continue;
    const memory::Block& former = parting.buffer->own.block;
    absl::Status copied = queue.device->Copy(parting.own.address, former.address, parting.buffer->bytes);
    if (!copied.ok()) {
      ForgetPartings(queue, sequence);
      return copied;
    }
  }
  for (const auto& [buffer, own, copies] : partings_) {
    buffer->own.is_merged = false;
    buffer->own.written &= copies;  // else nothing is in its block, should the command fail
    const uint64_t queues = (buffer->queues & queues_.open()) | uint64_t{1} << queue.id;
    Defer({std::exchange(buffer->own.block, own), nullptr, nullptr, 0, queues, {}}, &queue, sequence);
    if (copies) {
      copying_.push_back({buffer, queue.id, sequence});
      account_.arena->CopiedAtWrite(own.bytes);
    }
    CountMerged(-static_cast<int64_t>(own.bytes));
  }
  partings_.clear();
  return absl::OkStatus();
}

void Memory::Release(const Deferred& entry) {
  if (entry.host != nullptr) return;
  if (entry.shared != nullptr) return state_.shared->Drop(*entry.shared);
  state_.pool->Free(entry.block);
}

void Memory::ReleaseDeferred() {
  std::erase_if(deferred_, [&](const Deferred& entry) {
    bool completed = true;
    queues_.ForEach(entry.queues, [&](Queue& queue) {
      const std::atomic_ref<uint64_t> word(*transport_.CompletedWord(queue.id));
      completed &= word.load(std::memory_order_acquire) >= entry.marks[queue.id];
    });
    if (!completed || IsLent(entry)) return false;
    Release(entry);
    return true;
  });
  if (std::erase_if(copying_, [&](const Copying& copying) { return HasEnded(copying); }) != 0) CountMerged(0);
}

absl::StatusOr<std::optional<MemoryShortage>> Memory::Credit(uint64_t wanted) {
  memory::Pool& pool = *state_.pool;
  if (wanted <= account_.credit()) return std::nullopt;
  const uint64_t more = wanted - account_.credit();
  if (more > pool.ledger().capacity()) {
    pool.ledger().Reclaim();
    return NarrowestLimit();
  }
  // The session asks for one more block.
  const uint64_t block = wanted - std::min(wanted, allocated_);
  if (pool.ledger().ShortOf(account_, more)) {
    pool.ledger().Reclaim();  // the tenant's other sessions may have credit that they do not use
    if (auto shortage = pool.ledger().ShortOf(account_, more)) return shortage;
  }
  // Somewhat more, so that a session that grows asks seldom. What is merged does not count: the memory of
  // many that load the same would be this credit.
  const uint64_t part = (wanted - std::min(wanted, merged_bytes_)) / kAheadPart;
  const uint64_t ahead =
      std::min(pool.ledger().Room(account_), more + std::clamp(part, kMinAheadBytes, kMaxAheadBytes));
  if (pool.HasSpare(ahead, account_) && pool.GiveCredit(account_, ahead, block).ok()) return std::nullopt;
  absl::Status given = pool.GiveCredit(account_, more, block);
  if (given.ok()) return std::nullopt;
  if (absl::IsUnavailable(given)) return given;
  return pool.ShortageFor(account_);
}

MemoryShortage Memory::NarrowestLimit() const {
  MemoryShortage narrowest = state_.pool->ShortageFor(account_);
  const auto free = [](const MemoryShortage& limit) {
    return limit.limit - std::min(limit.used, limit.limit);
  };
  for (const MemoryShortage& limit : state_.pool->ledger().LimitsOf(account_)) {
    if (free(limit) < free(narrowest)) narrowest = limit;
  }
  // Credit that the session does not use is its own to use.
  const uint64_t unused = account_.credit() - std::min(account_.credit(), allocated_);
  narrowest.used -= std::min(narrowest.used, unused);
  return narrowest;
}

void Memory::SetIdle(bool idle) {
  if (idle == idle_) return;
  idle_ = idle;
  state_.pool->ledger().SetIdle(account_, idle);
}

}  // namespace xpud::stream
