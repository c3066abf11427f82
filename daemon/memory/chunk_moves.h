// How chunks come and go between the device, host memory and files: starts what Residency has decided, and
// says of each chunk where it is when that has ended. Keeps chunks whose arenas end meanwhile until then.
// REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/executor/api/mover.h"
#include "daemon/memory/chunk.h"
#include "daemon/memory/exported_memory.h"
#include "daemon/memory/host_store.h"

namespace xpud::memory {

class ChunkMoves {
 public:
  static constexpr int kMost = 4;  // that are under way at once, each way

  struct Events {
    // The device has no memory for a chunk that was to return, which is away again.
    std::function<void()> on_full;
    // A move has failed, and is to be tried again. At most once a second.
    std::function<void(const absl::Status&)> on_trouble;
  };
  // `mover` may be null: then nothing moves.
  ChunkMoves(executor::Mover* mover, HostStore& store, Events events);
  ~ChunkMoves();
  ChunkMoves(const ChunkMoves&) = delete;
  ChunkMoves& operator=(const ChunkMoves&) = delete;

  void SetNow(uint64_t now_ns) { now_ns_ = now_ns; }

  // ---- between device and host. REQUIRES: fewer than kMost are under way that way.

  int moves_out() const { return out_; }
  int moves_in() const { return in_; }
  uint64_t leaving_bytes() const { return leaving_bytes_; }
  // REQUIRES: what has changed has a place in the host.
  void StartLeave(Chunk& chunk, bool comes_back);
  // REQUIRES: its contents are in the host.
  void StartReturn(Chunk& chunk);
  // A chunk that is leaving stays, if that is still possible.
  bool Keep(Chunk& chunk);

  // ---- between host and files

  int writes() const { return writes_; }
  uint64_t writing_bytes() const { return writing_bytes_; }  // of the host, free when they have been written
  int reads() const { return reads_; }
  // The chunk's part of the host is free when it is written.
  void StartWrite(Chunk& chunk, FileSlots slots);
  // Has the chunk's contents come from its file, to `parts`, as a step of its return.
  void StartRead(Chunk& chunk, executor::HostParts parts);
  // A write has failed a short time ago.
  bool FilesAreFull() const { return now_ns_ < files_full_until_ns_; }
  // What this chunk has in the host stays there, also when it has been written: it is needed first.
  void SetNeeded(const Chunk* chunk) { needed_ = chunk; }
  bool IsNeeded(const Chunk& chunk) const { return &chunk == needed_; }

  // ---- in all

  bool is_under_way() const { return in_ + out_ > 0 || store_.files().is_busy(); }
  uint64_t last_ns() const { return last_ns_; }  // when the last move started
  // Whether a move has ended since the last call.
  bool TakeEnded() { return std::exchange(ended_, false); }
  // Whether nothing shall start now, because something has just failed.
  bool IsPausing() const { return now_ns_ < pause_until_ns_; }
  // Calls on_trouble, and begins the pause.
  void Note(const absl::Status& trouble);

  // A chunk of an arena that has ended, or that it has no more.
  void Forget(std::unique_ptr<Chunk> chunk);
  // What such chunks still have on the device.
  uint64_t forgotten_bytes() const { return forgotten_bytes_; }
  // Whether memory that was given up is still there, because another device maps it: not for long.
  bool AwaitsPeers();

 private:
  void Left(Chunk& chunk, const absl::Status& status);
  void Returned(Chunk& chunk, const absl::Status& status);
  void Written(Chunk& chunk, const absl::Status& status);
  void WasRead(Chunk& chunk, const absl::Status& status);
  // A move of a forgotten chunk has ended.
  void EndForgotten(Chunk& chunk);
  // Other devices shall not map its memory any more.
  void EndExport(Chunk& chunk);
  void ReturnPlaces(Chunk& chunk);

  executor::Mover* const mover_;
  HostStore& store_;
  const Events events_;
  const Chunk* needed_ = nullptr;  // not to be read
  std::vector<std::unique_ptr<Chunk>> forgotten_;
  uint64_t forgotten_bytes_ = 0;
  std::vector<std::shared_ptr<ExportedMemory>> mapped_elsewhere_;  // which has ended
  int in_ = 0, out_ = 0, writes_ = 0, reads_ = 0;
  uint64_t leaving_bytes_ = 0, writing_bytes_ = 0;
  bool ended_ = false;
  uint64_t now_ns_ = 0, last_ns_ = 0, pause_until_ns_ = 0, noted_ns_ = 0, files_full_until_ns_ = 0;
};

}  // namespace xpud::memory
