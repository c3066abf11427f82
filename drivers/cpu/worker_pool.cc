#include "drivers/cpu/worker_pool.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <system_error>

#include "drivers/cpu/futex.h"
#include "drivers/cpu/scratch.h"
#include "drivers/frontend/clock.h"

namespace xpud::drivers::cpu {
namespace {

using std::chrono_literals::operator""h;

// How long a worker spins for the next launch before it sleeps, and how long a launching thread spins for its
// last worker.
constexpr uint64_t kSpinNs = 30'000;
// After a thread could not be started.
constexpr uint64_t kPauseNs = 1'000'000'000;
// Ranges of groups per worker, on average: enough to balance the load, few enough to make claiming cheap.
constexpr uint64_t kRangesPerWorker = 8;

uint64_t CountOf(const ze_group_count_t& groups) {
  return uint64_t{groups.groupCountX} * groups.groupCountY * groups.groupCountZ;
}

// Spins until `done()` or the time is up.
template <typename Done>
bool SpinUntil(Done&& done) {
  const uint64_t end = NowNs() + kSpinNs;
  do {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      CpuRelax();
    }
  } while (NowNs() < end);
  return false;
}

}  // namespace

WorkerPool::WorkerPool(uint32_t workers) : workers_(std::max(workers, 1u)) {}

WorkerPool::~WorkerPool() {
  stopping_.store(true);
  epoch_.fetch_add(1);
  FutexWake(epoch_, INT32_MAX);
  MutexLock lock(mutex_);
  for (std::thread& thread : threads_) thread.join();
}

void* WorkerPool::Scratch() { return ThreadScratch(); }

void WorkerPool::RunMany(xpud_host_kernel_fn_t function, const void* const* arguments,
                         const ze_group_count_t& groups) {
  const uint64_t total = CountOf(groups);
  const uint64_t chunk = std::max<uint64_t>(1, total / (workers_ * kRangesPerWorker));
  RunFrom(0, {function, arguments, groups, total, chunk, nullptr});
}

void WorkerPool::RunPart(xpud_host_kernel_fn_t function, const void* const* arguments,
                         const ze_group_count_t& groups, const xpud_launch_part_desc_t& part) {
  *part.next_group =
      RunFrom(*part.next_group, {function, arguments, groups, CountOf(groups), /*chunk=*/1, &part});
}

// Returns the first group that has not run.
uint64_t WorkerPool::RunFrom(uint64_t first, const Work& work) {
  if (first >= work.total) return work.total;
  Slot alone;
  Slot* const shared = workers_ == 1 ? nullptr : TakeSlot();
  Slot& slot = shared == nullptr ? alone : *shared;
  slot.work = work;
  slot.stops.store(false, std::memory_order_relaxed);
  slot.next.store(first, std::memory_order_relaxed);
  if (shared != nullptr) Publish(slot);
  RunAsOwner(slot);
  if (shared != nullptr) Close(slot);
  const uint64_t next = std::min(slot.next.load(std::memory_order_relaxed), work.total);
  if (shared != nullptr) shared->taken.store(false, std::memory_order_release);
  return next;
}

// Returns null if sixteen threads are launching; then each of the other threads runs its own groups.
WorkerPool::Slot* WorkerPool::TakeSlot() {
  for (Slot& slot : slots_) {
    if (!slot.taken.load(std::memory_order_relaxed) &&
        !slot.taken.exchange(true, std::memory_order_acquire)) {
      return &slot;
    }
  }
  return nullptr;
}

void WorkerPool::Publish(Slot& slot) {
  if (!started_.load(std::memory_order_acquire)) StartThreads();
  slot.state.fetch_or(kOpen, std::memory_order_release);
  // Sequentially consistent with SleepUntilPublished: either we see the sleeper, or the sleeper sees the new
  // epoch.
  epoch_.fetch_add(1);
  const uint32_t sleepers = sleepers_.load();
  if (sleepers == 0) return;
  FutexWake(epoch_, static_cast<int>(std::min<uint64_t>(sleepers, slot.work.total - 1)));
}

void WorkerPool::Close(Slot& slot) {
  slot.state.fetch_and(~kOpen, std::memory_order_acquire);
  const auto empty = [&] { return slot.state.load(std::memory_order_acquire) == 0; };
  if (!SpinUntil(empty)) {
    uint32_t state = slot.state.fetch_or(kWaiting) | kWaiting;
    while ((state & ~kWaiting) != 0) {
      FutexWait(slot.state, state, 1h);
      state = slot.state.load(std::memory_order_acquire);
    }
    slot.state.fetch_and(~kWaiting, std::memory_order_acquire);
  }
}

template <typename GoesOn>
void WorkerPool::RunRanges(Slot& slot, GoesOn&& goes_on) {
  const Work& work = slot.work;
  do {
    const uint64_t begin = slot.next.fetch_add(work.chunk, std::memory_order_relaxed);
    if (begin >= work.total) return;
    RunRange(work, begin, std::min(begin + work.chunk, work.total));
  } while (goes_on() && !slot.stops.load(std::memory_order_relaxed));
}

// The owner alone looks at the clock: another worker that stopped a little earlier would be idle until the
// owner's group ends.
void WorkerPool::RunAsOwner(Slot& slot) {
  const xpud_launch_part_desc_t* const part = slot.work.part;
  uint64_t end = part == nullptr ? UINT64_MAX : NowNs() + part->nanoseconds;
  RunRanges(slot, [&] {
    if (part == nullptr || NowNs() < end) return true;
    if (part->goes_on != nullptr && part->goes_on(part->context) != 0) {
      end = NowNs() + part->nanoseconds;
      return true;
    }
    slot.stops.store(true, std::memory_order_relaxed);
    return false;
  });
}

void WorkerPool::RunRange(const Work& work, uint64_t begin, uint64_t end) {
  const uint64_t width = work.groups.groupCountX;
  const uint64_t height = work.groups.groupCountY;
  uint32_t group[3] = {static_cast<uint32_t>(begin % width), static_cast<uint32_t>(begin / width % height),
                       static_cast<uint32_t>(begin / (width * height))};
  void* const scratch = ThreadScratch();
  for (uint64_t i = begin; i < end; ++i) {
    const uint32_t copy[3] = {group[0], group[1], group[2]};
    RunGroup(work.function, work.arguments, copy, scratch);
    if (++group[0] < width) continue;
    group[0] = 0;
    if (++group[1] < height) continue;
    group[1] = 0;
    ++group[2];
  }
}

void WorkerPool::StartThreads() {
  if (!mutex_.TryLock()) return;
  if (!started_.load(std::memory_order_relaxed) && NowNs() >= next_try_ns_) {
    try {
      while (threads_.size() + 1 < workers_)
        threads_.emplace_back(&WorkerPool::Serve, this, static_cast<uint32_t>(threads_.size() + 1));
      started_.store(true, std::memory_order_release);
    } catch (const std::system_error&) {
      next_try_ns_ = NowNs() + kPauseNs;
    }
  }
  mutex_.Unlock();
}

void WorkerPool::Serve(uint32_t index) {
  pthread_setname_np(pthread_self(), ("xpud-cpu-" + std::to_string(index)).substr(0, 15).c_str());
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), -10);  // where permitted
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    if (HelpAny()) continue;
    const auto published = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(published)) SleepUntilPublished(seen);
  }
}

bool WorkerPool::HelpAny() {
  bool helped = false;
  for (Slot& slot : slots_) helped |= Help(slot);
  return helped;
}

bool WorkerPool::Help(Slot& slot) {
  if ((slot.state.load(std::memory_order_relaxed) & kOpen) == 0) return false;
  bool helped = false;
  if ((slot.state.fetch_add(1, std::memory_order_acquire) & kOpen) != 0) {
    helped = slot.next.load(std::memory_order_relaxed) < slot.work.total &&
             !slot.stops.load(std::memory_order_relaxed);
    if (helped) RunRanges(slot, [] { return true; });
  }
  const uint32_t before = slot.state.fetch_sub(1, std::memory_order_release);
  if ((before & kWaiting) != 0) FutexWake(slot.state, 1);
  return helped;
}

void WorkerPool::SleepUntilPublished(uint32_t seen) {
  sleepers_.fetch_add(1);
  while (epoch_.load() == seen && !stopping_.load()) FutexWait(epoch_, seen, 1h);
  sleepers_.fetch_sub(1);
}

}  // namespace xpud::drivers::cpu
