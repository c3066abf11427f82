#include "daemon/handles/loans.h"

#include <bit>

#include "absl/strings/str_cat.h"

namespace xpud::handles {

bool Loans::IsNext(uint32_t source, uint64_t id) const {
  const MutexLock lock(mutex_);
  return id == last_[source] + 1;
}

bool Loans::Add(const std::shared_ptr<Loan>& loan) {
  const MutexLock lock(mutex_);
  if (open_.size() >= wire::kMaxLoans) {
    full_ |= uint64_t{1} << loan->source();
    return false;
  }
  last_[loan->source()] = loan->id();
  open_[{loan->source(), loan->id()}] = loan;
  return true;
}

void Loans::SetReady(Loan& loan, absl::Status error) {
  loan.error_ = std::move(error);
  loan.state_.store(Loan::State::kReady, std::memory_order_seq_cst);
  RingWaiting();
}

void Loans::RingWaiting() {
  for (uint64_t waiting = waiting_.exchange(0, std::memory_order_seq_cst); waiting != 0;
       waiting &= waiting - 1)
    ring_(static_cast<uint32_t>(std::countr_zero(waiting)));
}

bool Loans::TakeBack(Loan& loan) {
  Loan::State state = loan.state();
  while (state == Loan::State::kLent || state == Loan::State::kReady) {
    if (!loan.state_.compare_exchange_weak(state, Loan::State::kReturned)) continue;
    Erase(loan);
    return true;
  }
  return state == Loan::State::kReturned;
}

absl::StatusOr<std::shared_ptr<Loan>> Loans::Find(uint32_t source, uint64_t id) const {
  const MutexLock lock(mutex_);
  const auto found = open_.find({source, id});
  if (found != open_.end()) return found->second;
  if (id > last_[source]) return nullptr;
  return absl::InvalidArgumentError(
      absl::StrCat("a copy names loan ", id, ", which has ended; each loan is for one copy"));
}

bool Loans::Borrow(Loan& loan) {
  Loan::State ready = Loan::State::kReady;
  return loan.state_.compare_exchange_strong(ready, Loan::State::kBorrowed);
}

void Loans::Return(Loan& loan) {
  Erase(loan);
  loan.state_.store(Loan::State::kReturned, std::memory_order_release);
  ring_(loan.source());
}

void Loans::Erase(const Loan& loan) {
  uint64_t waiting = 0;
  {
    const MutexLock lock(mutex_);
    open_.erase({loan.source(), loan.id()});
    waiting = std::exchange(full_, 0);
  }
  for (; waiting != 0; waiting &= waiting - 1) ring_(static_cast<uint32_t>(std::countr_zero(waiting)));
}

size_t Loans::open() const {
  const MutexLock lock(mutex_);
  return open_.size();
}

}  // namespace xpud::handles
