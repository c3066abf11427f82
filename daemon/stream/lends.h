// What a device session has lent to its other devices, and what it has borrowed from them: see
// handles/loans.h. While a part is lent, nothing writes it, its memory is not freed, and its chunk stays.
// REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "daemon/handles/loans.h"
#include "daemon/memory/chunk.h"
#include "daemon/memory/shared_memory.h"
#include "daemon/memory/user.h"

namespace xpud::stream {

class Lends {
 public:
  // `lane`: the number of this one.
  Lends(handles::Loans& loans, uint32_t lane) : loans_(loans), lane_(lane) {}
  ~Lends() { Drop(); }
  Lends(const Lends&) = delete;
  Lends& operator=(const Lends&) = delete;

  struct Lent {
    std::shared_ptr<handles::Loan> loan;
    const std::byte* begin;
    uint64_t bytes;
    memory::Chunk* chunk;  // null: the loan is an error only
    memory::Mark mark;     // of the command that lends
    // Stands for what the other device reads: gets the poison of what wrote it before the loan.
    memory::SharedAllocation contents;
    bool ready = false;
  };

  uint32_t lane() const { return lane_; }
  handles::Loans& loans() { return loans_; }
  bool empty() const { return lent_.empty(); }
  // Whether any of the bytes is lent.
  bool IsLent(const std::byte* begin, uint64_t bytes) const;
  // Lends `bytes` bytes at `begin`, which lie in `chunk`. Without a chunk, `error` is what the other device
  // gets. Returns null if too many loans are open.
  Lent* Add(uint64_t id, memory::Mark mark, const std::byte* begin, uint64_t bytes, memory::Chunk* chunk,
            const absl::Status& error);
  // What `user` has done meanwhile makes loans ready; those that were returned end. Returns whether any has.
  bool Settle(const memory::User& user);
  // Work of the device was lost: calls `visit` for what was lent and is not ready.
  template <typename Visit>
  void ForEachUnfinished(Visit visit) {
    for (Lent& lent : lent_)
      if (!lent.ready) visit(lent.contents, lent.bytes);
  }
  // Takes back what nobody copies yet. Returns whether nobody copies any more.
  bool TakeBack();
  // Forgets all. REQUIRES: the session's work on the device has ended.
  void Drop();

 private:
  static void Release(const Lent& lent) {
    if (lent.chunk != nullptr) --lent.chunk->loans;
  }

  handles::Loans& loans_;
  const uint32_t lane_;
  std::list<Lent> lent_;  // they do not move
};

class Borrows {
 public:
  explicit Borrows(handles::Loans& loans) : loans_(loans) {}
  ~Borrows() { ReturnAll(); }
  Borrows(const Borrows&) = delete;
  Borrows& operator=(const Borrows&) = delete;

  bool empty() const { return borrowed_.empty(); }
  // Command `mark` copies from it.
  void Add(std::shared_ptr<handles::Loan> loan, memory::Mark mark) {
    borrowed_.push_back({std::move(loan), mark});
  }
  // Returns what `user` has copied.
  void Settle(const memory::User& user);
  // REQUIRES: the device does nothing more for the session.
  void ReturnAll();

 private:
  struct Borrowed {
    std::shared_ptr<handles::Loan> loan;
    memory::Mark mark;
  };
  handles::Loans& loans_;
  std::vector<Borrowed> borrowed_;
};

}  // namespace xpud::stream
