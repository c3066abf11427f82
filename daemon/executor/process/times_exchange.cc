#include "daemon/executor/process/times_exchange.h"

#include <chrono>

#include "proto/transport/futex.h"

namespace xpud::executor::process {

uint32_t TimesExchange::Want(bool on) {
  const uint32_t last = wanted_.load(std::memory_order_relaxed);
  const uint32_t ticket = ((last >> 1) + 1) << 1 | (on ? 1 : 0);
  wanted_.store(ticket, std::memory_order_release);
  transport::FutexWakeAll(wanted_);
  return ticket;
}

uint32_t TimesExchange::Await(uint32_t known, int milliseconds) {
  if (const uint32_t wanted = wanted_.load(std::memory_order_acquire); wanted != known) return wanted;
  transport::FutexWait(wanted_, known, std::chrono::milliseconds(milliseconds));
  return wanted_.load(std::memory_order_acquire);
}

void TimesExchange::Add(const Entry& entry) {
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) >= kCapacity) return;
  entries_[tail % kCapacity] = entry;
  tail_.store(tail + 1, std::memory_order_release);
}

}  // namespace xpud::executor::process
