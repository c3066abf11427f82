// Parts of buffers that the devices of one session lend to each other, so that they are copied without the
// host in between: the table of the session. The lanes share nothing else of a copy. Thread-safe.
//
// clang-format off
//            the source's lane                                     the target's lane
//   kLend:     Add                    kLent
//              its queue is so far    kReady      -----------> kCopyFrom: Borrow        kBorrowed
//              ends: TakeBack         kReturned                the copy is done: Return kReturned
// clang-format on
// From kLent to kReturned the part keeps its contents and its place: the source's lane ensures that.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/memory/exported_memory.h"
#include "proto/base/mutex.h"
#include "proto/transport/layout.h"
#include "proto/wire/commands.h"

namespace xpud::handles {

class Loan {
 public:
  enum class State : uint32_t { kLent, kReady, kBorrowed, kReturned };

  // `memory`: of the chunk, in which the part begins at `offset`; null if there is only an error to be had.
  Loan(uint32_t source, uint64_t id, uint64_t bytes, std::shared_ptr<memory::ExportedMemory> memory,
       uint64_t offset)
      : source_(source), id_(id), bytes_(bytes), offset_(offset), memory_(std::move(memory)) {}

  uint32_t source() const { return source_; }  // the lane
  uint64_t id() const { return id_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t offset() const { return offset_; }
  const std::shared_ptr<memory::ExportedMemory>& memory() const { return memory_; }
  State state() const { return state_.load(std::memory_order_acquire); }
  // Why the contents must not be used. REQUIRES: the state was kReady.
  const absl::Status& error() const { return error_; }

 private:
  friend class Loans;
  const uint32_t source_;
  const uint64_t id_, bytes_, offset_;
  const std::shared_ptr<memory::ExportedMemory> memory_;
  absl::Status error_;
  std::atomic<State> state_{State::kLent};
};

class Loans {
 public:
  // `ring` has the session's part on a lane look again. Called on any lane's thread.
  explicit Loans(std::function<void(uint32_t lane)> ring) : ring_(std::move(ring)) {}
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // ---- for the source's lane
  // Whether `id` is the ring's next one.
  bool IsNext(uint32_t source, uint64_t id) const;
  // Returns false if too many are open; the lane is told when one has ended. REQUIRES: IsNext.
  bool Add(const std::shared_ptr<Loan>& loan);
  // The source's queue has come so far. `error`: of the contents.
  void SetReady(Loan& loan, absl::Status error);
  // The source's session ends. Returns whether nobody copies from it any more.
  bool TakeBack(Loan& loan);

  // ---- for the target's lane
  // Returns a loan that is open, or null if it is still to come. An error is a breach of protocol: there was
  // one with this id.
  absl::StatusOr<std::shared_ptr<Loan>> Find(uint32_t source, uint64_t id) const;
  // The target's lane waits for a loan to come or to be ready; it is told. Look again after this call.
  void Await(uint32_t target) { waiting_.fetch_or(uint64_t{1} << target, std::memory_order_seq_cst); }
  // The target will copy now. Returns false if the source's session has ended.
  bool Borrow(Loan& loan);
  // Its copy has ended, or there is none.
  void Return(Loan& loan);

  size_t open() const;

 private:
  void Erase(const Loan& loan);
  void RingWaiting();

  const std::function<void(uint32_t)> ring_;
  std::atomic<uint64_t> waiting_{0};  // bit l: lane l waits
  mutable Mutex mutex_;
  std::array<uint64_t, transport::kMaxDevices> last_ ABSL_GUARDED_BY(mutex_){};  // the last id of each source
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, std::shared_ptr<Loan>> open_ ABSL_GUARDED_BY(mutex_);
  uint64_t full_ ABSL_GUARDED_BY(mutex_) = 0;  // bit l: lane l waits for room
};

}  // namespace xpud::handles
