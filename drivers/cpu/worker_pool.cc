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
// Of a count of ranges claimed from both ends.
constexpr int kBackShift = 32;
constexpr uint64_t kFrontMask = UINT32_MAX;

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
  if (total == 0) return;
  const uint64_t chunk = std::max<uint64_t>(1, total / (workers_ * kRangesPerWorker));
  Slot alone;
  Slot* const shared = TakeSlot();
  Slot& slot = shared == nullptr ? alone : *shared;
  Begin(slot, shared != nullptr, 0, {function, arguments, groups, total, chunk, /*from_both_ends=*/true});
  RunRanges(slot, End::kFront, [] { return true; });
  Finish(slot, shared != nullptr);
}

void WorkerPool::RunPart(xpud_host_kernel_fn_t function, const void* const* arguments,
                         const ze_group_count_t& groups, const xpud_launch_part_desc_t& part,
                         OpenLaunch& open) {
  const uint64_t total = CountOf(groups);
  if (part.ends != 0) return open.End();
  Slot alone;
  Slot* shared = open.slot_;
  if (shared == nullptr) {
    if (*part.next_group >= total) {
      *part.next_group = total;
      return;
    }
    shared = TakeSlot();
    Begin(shared == nullptr ? alone : *shared, shared != nullptr, *part.next_group,
          {function, arguments, groups, total});
  } else {
    open.slot_ = nullptr;
    open_.fetch_sub(1, std::memory_order_relaxed);
    shared->is_left.store(false, std::memory_order_relaxed);
    Publish(*shared);  // it comes before launches that are left
  }
  Slot& slot = shared == nullptr ? alone : *shared;
  const bool in_time = RunPartAsOwner(slot, part);
  if (part.helped_ns != nullptr) *part.helped_ns += slot.helped_ns.exchange(0) / workers_;
  if (!in_time && part.helped_ns != nullptr && shared != nullptr && Leave(slot)) {
    open.pool_ = this;
    open.slot_ = shared;
    *part.next_group = std::min(slot.claimed.load(std::memory_order_relaxed), total - 1);
    return;
  }
  if (!in_time) slot.stops.store(true, std::memory_order_relaxed);
  *part.next_group = Finish(slot, shared != nullptr);
}

void WorkerPool::OpenLaunch::End() {
  if (slot_ == nullptr) return;
  slot_->stops.store(true, std::memory_order_relaxed);
  pool_->open_.fetch_sub(1, std::memory_order_relaxed);
  pool_->Finish(*slot_, /*is_shared=*/true);
  slot_ = nullptr;
}

void WorkerPool::Begin(Slot& slot, bool is_shared, uint64_t first, const Work& work) {
  slot.work = work;
  slot.stops.store(false, std::memory_order_relaxed);
  slot.is_left.store(false, std::memory_order_relaxed);
  slot.helped_ns.store(0, std::memory_order_relaxed);
  slot.claimed.store(first, std::memory_order_relaxed);
  if (is_shared) Publish(slot);
}

uint64_t WorkerPool::Finish(Slot& slot, bool is_shared) {
  if (is_shared) Close(slot);
  const uint64_t claimed = std::min(slot.claimed.load(std::memory_order_relaxed), slot.work.ranges());
  if (is_shared) slot.taken.store(false, std::memory_order_release);
  return claimed;
}

bool WorkerPool::Leave(Slot& slot) {
  if (!slot.HasMore()) return false;
  if (open_.fetch_add(1, std::memory_order_relaxed) >= kMaxOpen) {
    open_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  slot.left_ns.store(NowNs(), std::memory_order_relaxed);
  slot.is_left.store(true, std::memory_order_release);
  return true;
}

// Returns null if there are no other workers, or sixteen threads are launching; then each of the other
// threads runs its own groups.
WorkerPool::Slot* WorkerPool::TakeSlot() {
  if (workers_ == 1) return nullptr;
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

bool WorkerPool::Slot::HasMore() const {
  const uint64_t count = claimed.load(std::memory_order_relaxed);
  return (work.from_both_ends ? (count & kFrontMask) + (count >> kBackShift) : count) < work.ranges();
}

bool WorkerPool::Slot::Claim(End end, uint64_t& range) {
  const bool at_back = work.from_both_ends && end == End::kBack;
  const uint64_t before =
      claimed.fetch_add(at_back ? uint64_t{1} << kBackShift : 1, std::memory_order_relaxed);
  const uint64_t back = work.from_both_ends ? before >> kBackShift : 0,
                 front = work.from_both_ends ? before & kFrontMask : before;
  if (front + back >= work.ranges()) return false;
  range = at_back ? work.ranges() - 1 - back : front;
  return true;
}

template <typename GoesOn>
void WorkerPool::RunRanges(Slot& slot, End end, GoesOn&& goes_on) {
  uint64_t range = 0;
  while (slot.Claim(end, range)) {
    RunRange(slot.work, range);
    if (!goes_on() || slot.stops.load(std::memory_order_relaxed)) return;
  }
}

// The owner alone looks at the clock: another worker that stopped a little earlier would be idle until the
// owner's group ends.
bool WorkerPool::RunPartAsOwner(Slot& slot, const xpud_launch_part_desc_t& part) {
  uint64_t end = NowNs() + part.nanoseconds;
  bool in_time = true;
  RunRanges(slot, End::kFront, [&] {
    if (NowNs() < end) return true;
    in_time = part.goes_on != nullptr && part.goes_on(part.context) != 0;
    if (in_time) end = NowNs() + part.nanoseconds;
    return in_time;
  });
  return in_time;
}

// Counts the time of groups while the owner is away, and then goes where another launch was published since
// `seen`.
void WorkerPool::RunAsWorker(Slot& slot, End end, uint32_t seen) {
  const auto is_left = [&] { return slot.is_left.load(std::memory_order_acquire); };
  uint64_t began = is_left() ? NowNs() : 0;
  RunRanges(slot, end, [&] {
    if (!is_left()) return true;
    const uint64_t now = NowNs(), from = std::max(began, slot.left_ns.load(std::memory_order_relaxed));
    slot.helped_ns.fetch_add(now - std::min(from, now), std::memory_order_relaxed);
    began = now;
    return epoch_.load(std::memory_order_relaxed) == seen;
  });
}

void WorkerPool::RunRange(const Work& work, uint64_t range) {
  const uint64_t begin = range * work.chunk, end = std::min(begin + work.chunk, work.total);
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
  const End end = index % 2 == 0 ? End::kFront : End::kBack;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    if (HelpAny(end, seen)) continue;
    const auto published = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
    if (!SpinUntil(published)) SleepUntilPublished(seen);
  }
}

// Launches that were left by their owners come last, one at a time.
bool WorkerPool::HelpAny(End end, uint32_t seen) {
  const auto is_left = [](const Slot& slot) { return slot.is_left.load(std::memory_order_relaxed); };
  bool helped = false;
  for (Slot& slot : slots_) helped |= !is_left(slot) && Help(slot, end, seen);
  return helped ||
         std::ranges::any_of(slots_, [&](Slot& slot) { return is_left(slot) && Help(slot, end, seen); });
}

bool WorkerPool::Help(Slot& slot, End end, uint32_t seen) {
  if ((slot.state.load(std::memory_order_relaxed) & kOpen) == 0) return false;
  bool helped = false;
  if ((slot.state.fetch_add(1, std::memory_order_acquire) & kOpen) != 0) {
    helped = slot.HasMore() && !slot.stops.load(std::memory_order_relaxed);
    if (helped) RunAsWorker(slot, end, seen);
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
