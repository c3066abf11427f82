#include "daemon/memory/chunk_moves.h"

#include <algorithm>
#include <utility>

#include "daemon/memory/arena.h"
#include "proto/base/check.h"

namespace xpud::memory {
namespace {

constexpr uint64_t kMillisecond = 1'000'000, kSecond = 1000 * kMillisecond;
constexpr uint64_t kPauseNs = 10 * kMillisecond;  // after a move failed
// Files: how long they count as full after a write failed, and how often a chunk is read.
constexpr uint64_t kFilesFullNs = 5 * kSecond;
constexpr int kMaxReads = 5;
constexpr uint64_t kReadAgainNs = 100 * kMillisecond;

}  // namespace

ChunkMoves::ChunkMoves(executor::Mover* mover, HostStore& store, Events events)
    : mover_(mover), store_(store), events_(std::move(events)) {}

ChunkMoves::~ChunkMoves() {
  if (mover_ != nullptr) mover_->End();
}

// ---- between device and host

void ChunkMoves::StartLeave(Chunk& chunk, bool comes_back) {
  EndExport(chunk);
  chunk.place = Chunk::Place::kLeaving;
  chunk.comes_back = comes_back;
  ++out_;
  leaving_bytes_ += chunk.bytes();
  last_ns_ = now_ns_;
  chunk.move = mover_->StartLeave(*chunk.memory, chunk.changed ? chunk.host : executor::HostParts(),
                                  [this, &chunk](const absl::Status& status) { Left(chunk, status); });
}

void ChunkMoves::StartReturn(Chunk& chunk) {
  chunk.place = Chunk::Place::kReturning;
  ++in_;
  last_ns_ = now_ns_;
  chunk.arena->MovedIn(chunk.bytes());
  chunk.move = mover_->StartReturn(*chunk.memory, chunk.host,
                                   [this, &chunk](const absl::Status& status) { Returned(chunk, status); });
}

bool ChunkMoves::Keep(Chunk& chunk) {
  if (chunk.place != Chunk::Place::kLeaving || !chunk.move->Forget()) return false;
  chunk.place = Chunk::Place::kDevice;
  leaving_bytes_ -= chunk.bytes();
  return true;
}

void ChunkMoves::Left(Chunk& chunk, const absl::Status& status) {
  --out_;
  if (chunk.place == Chunk::Place::kLeaving) leaving_bytes_ -= chunk.bytes();
  ended_ = true;
  chunk.move = nullptr;
  if (chunk.arena == nullptr) return EndForgotten(chunk);
  if (!status.ok()) {
    // Its contents may have changed since they were copied.
    chunk.place = Chunk::Place::kDevice;
    chunk.changed = true;
    if (!absl::IsCancelled(status)) Note(status);
    return;
  }
  chunk.place = Chunk::Place::kAway;
  chunk.changed = false;
  chunk.left_ns = now_ns_;
  chunk.arena->MovedOut(chunk.bytes());
  chunk.arena->moved().out += chunk.bytes();
}

void ChunkMoves::Returned(Chunk& chunk, const absl::Status& status) {
  --in_;
  ended_ = true;
  chunk.move = nullptr;
  if (chunk.arena == nullptr) return EndForgotten(chunk);
  if (!status.ok()) {
    chunk.place = Chunk::Place::kAway;
    chunk.arena->MovedOut(chunk.bytes());
    if (absl::IsResourceExhausted(status) && AwaitsPeers()) return;  // there is room soon
    if (absl::IsResourceExhausted(status)) return events_.on_full();
    return Note(status);
  }
  chunk.place = Chunk::Place::kDevice;
  if (!chunk.is_moving()) store_.files().Return(std::exchange(chunk.file, {}));
  chunk.changed = chunk.host.empty();
  chunk.comes_back = false;
  chunk.last_use_ns = now_ns_;
  chunk.arena->moved().in += chunk.bytes();
}

// ---- between host and files

void ChunkMoves::StartWrite(Chunk& chunk, FileSlots slots) {
  chunk.file = std::move(slots);
  chunk.filing = Chunk::Filing::kWriting;
  ++writes_;
  writing_bytes_ += HostStore::SlotBytesFor(chunk.bytes());
  last_ns_ = now_ns_;
  store_.files().Write(chunk.host, chunk.file,
                       [this, &chunk](const absl::Status& status) { Written(chunk, status); });
}

void ChunkMoves::Written(Chunk& chunk, const absl::Status& status) {
  --writes_;
  writing_bytes_ -= HostStore::SlotBytesFor(chunk.bytes());
  ended_ = true;
  chunk.filing = Chunk::Filing::kNone;
  if (chunk.arena == nullptr) return EndForgotten(chunk);
  if (status.ok() && chunk.place == Chunk::Place::kAway && !IsNeeded(chunk))
    return store_.Return(std::exchange(chunk.host, {}));
  store_.files().Return(std::exchange(chunk.file, {}));
  if (status.ok()) return;
  files_full_until_ns_ = now_ns_ + kFilesFullNs;
  Note(status);
}

void ChunkMoves::StartRead(Chunk& chunk, executor::HostParts parts) {
  chunk.host = std::move(parts);
  chunk.filing = Chunk::Filing::kReading;
  ++reads_;
  last_ns_ = now_ns_;
  store_.files().Read(chunk.file, chunk.host,
                      [this, &chunk](const absl::Status& status) { WasRead(chunk, status); });
}

// The file keeps its contents until the chunk is on the device: the host's part may be needed for another.
void ChunkMoves::WasRead(Chunk& chunk, const absl::Status& status) {
  --reads_;
  ended_ = true;
  chunk.filing = Chunk::Filing::kNone;
  if (chunk.arena == nullptr) return EndForgotten(chunk);
  if (status.ok()) {
    chunk.failed_reads = 0;
    return;
  }
  store_.Return(std::exchange(chunk.host, {}));
  chunk.read_after_ns = now_ns_ + kReadAgainNs;
  Note(status);
  if (++chunk.failed_reads < kMaxReads) return;
  chunk.is_lost = true;
  store_.files().Return(std::exchange(chunk.file, {}));
  std::erase(chunk.arena->watch().wanted, &chunk);
}

// ---- ends

void ChunkMoves::Note(const absl::Status& trouble) {
  pause_until_ns_ = now_ns_ + kPauseNs;
  if (now_ns_ - std::exchange(noted_ns_, now_ns_) < kSecond) return;
  events_.on_trouble(trouble);
}

void ChunkMoves::Forget(std::unique_ptr<Chunk> chunk) {
  ended_ = true;
  XPUD_CHECK(chunk->loans == 0);
  EndExport(*chunk);
  if (!chunk->is_moving()) return ReturnPlaces(*chunk);
  if (chunk->is_on_device()) forgotten_bytes_ += chunk->bytes();
  forgotten_.push_back(std::move(chunk));
}

void ChunkMoves::EndForgotten(Chunk& chunk) {
  if (chunk.is_moving()) return;
  if (chunk.is_on_device()) forgotten_bytes_ -= chunk.bytes();
  ReturnPlaces(chunk);
  std::erase_if(forgotten_, [&](const auto& each) { return each.get() == &chunk; });
}

void ChunkMoves::ReturnPlaces(Chunk& chunk) {
  store_.Return(std::exchange(chunk.host, {}));
  store_.files().Return(std::exchange(chunk.file, {}));
}

void ChunkMoves::EndExport(Chunk& chunk) {
  if (chunk.exported == nullptr) return;
  mapped_elsewhere_.push_back(std::exchange(chunk.exported, nullptr));
  mapped_elsewhere_.back()->End();
  AwaitsPeers();  // forgets those that nobody maps
}

bool ChunkMoves::AwaitsPeers() {
  std::erase_if(mapped_elsewhere_, [](const auto& memory) { return memory->mappings() == 0; });
  return !mapped_elsewhere_.empty();
}

}  // namespace xpud::memory
