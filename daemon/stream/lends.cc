#include "daemon/stream/lends.h"

#include <algorithm>
#include <utility>

namespace xpud::stream {

using handles::Loan;

bool Lends::IsLent(const std::byte* begin, uint64_t bytes) const {
  return std::ranges::any_of(lent_, [&](const Lent& lent) {
    return lent.chunk != nullptr && begin < lent.begin + lent.bytes && lent.begin < begin + bytes;
  });
}

Lends::Lent* Lends::Add(uint64_t id, memory::Mark mark, const std::byte* begin, uint64_t bytes,
                        memory::Chunk* chunk, const absl::Status& error) {
  auto loan = chunk == nullptr
                  ? std::make_shared<Loan>(lane_, id, bytes, nullptr, 0)
                  : std::make_shared<Loan>(lane_, id, bytes, chunk->exported,
                                           static_cast<uint64_t>(begin - chunk->memory->address()));
  if (!loans_.Add(loan)) return nullptr;
  if (chunk != nullptr) ++chunk->loans;
  Lent& lent = lent_.emplace_back(Lent{
      .loan = std::move(loan), .begin = begin, .bytes = bytes, .chunk = chunk, .mark = mark, .contents = {}});
  lent.contents.is_shared = true;
  lent.contents.block.address = const_cast<std::byte*>(begin);
  lent.contents.block.bytes = bytes;
  if (!error.ok()) {
    lent.contents.poison = memory::Poison::kFresh;
    lent.contents.error = error;
  }
  return &lent;
}

bool Lends::Settle(const memory::User& user) {
  const size_t before = lent_.size();
  for (auto lent = lent_.begin(); lent != lent_.end();) {
    if (!lent->ready && user.HasCompleted(lent->mark)) {
      lent->ready = true;
      const bool poisoned = lent->contents.poison != memory::Poison::kNone;
      loans_.SetReady(*lent->loan, poisoned ? lent->contents.error : absl::OkStatus());
    }
    if (lent->loan->state() == Loan::State::kReturned) {
      Release(*lent);
      lent = lent_.erase(lent);
    } else {
      ++lent;
    }
  }
  return lent_.size() != before;
}

bool Lends::TakeBack() {
  return std::ranges::all_of(lent_, [&](const Lent& lent) { return loans_.TakeBack(*lent.loan); });
}

void Lends::Drop() {
  for (const Lent& lent : lent_) {
    (void)loans_.TakeBack(*lent.loan);
    Release(lent);
  }
  lent_.clear();
}

void Borrows::Settle(const memory::User& user) {
  std::erase_if(borrowed_, [&](const Borrowed& each) {
    if (!user.HasCompleted(each.mark)) return false;
    loans_.Return(*each.loan);
    return true;
  });
}

void Borrows::ReturnAll() {
  for (const Borrowed& each : borrowed_) loans_.Return(*each.loan);
  borrowed_.clear();
}

}  // namespace xpud::stream
