#include "daemon/executor/process/time_keeper.h"

#include <utility>

#include "daemon/executor/process/messages.h"
#include "kernels/library/host_modules.h"
#include "proto/base/clock.h"

namespace xpud::executor::process {
namespace {

constexpr int kFlushMs = 20, kLongMs = 60'000;

// A tag is that of a recording, or a queue and the number of its work.
constexpr uint64_t kRecording = uint64_t{1} << 63;
constexpr int kNumberBits = 46;
static_assert(kMaxQueueBits + kNumberBits < 63);

uint64_t TagOf(uint32_t queue, uint64_t number) {
  return (uint64_t{queue} + 1) << kNumberBits | (number & ((uint64_t{1} << kNumberBits) - 1));
}

TimesExchange::Entry EntryOf(const xpud_trace_record_t& record) {
  return {static_cast<uint32_t>(record.tag >> kNumberBits) - 1,
          0,
          {record.tag & ((uint64_t{1} << kNumberBits) - 1), record.began_ns, record.ended_ns}};
}

}  // namespace

TimeKeeper::TimeKeeper(LevelZeroDevice& device, TimesExchange& exchange)
    : device_(device), uses_clock_(device.properties().synchronous), exchange_(exchange) {}

void TimeKeeper::Serve() {
  for (uint32_t done = 0;;) {
    const uint32_t wanted = exchange_.Await(done, on() && !uses_clock_ ? kFlushMs : kLongMs);
    if (wanted != done) Turn(TimesExchange::IsOn(wanted));
    if (on() && !uses_clock_) (void)device_.FlushTrace();
    if (wanted != done) exchange_.Reach(wanted, on());
    done = wanted;
  }
}

void TimeKeeper::Turn(bool on) {
  if (uses_clock_) return on_.store(on);
  if (!device_.traces() || on == this->on()) return;
  if (!on) {
    on_.store(false);
    (void)device_.StopTrace();  // it reports what has ended
    return;
  }
  kernels::LoadGpuTracing();
  const auto report = [](void* keeper, const xpud_trace_record_t* records, size_t count) {
    static_cast<TimeKeeper*>(keeper)->Report({records, count});
  };
  on_.store(device_.StartTrace(report, this).ok());
}

void TimeKeeper::Appending::Begin(TimeKeeper& keeper, uint32_t queue, uint64_t number) {
  keeper_ = &keeper;
  entry_ = {queue, 0, {number, NowNs(), 0, WorkTime::What::kAppended}};
  if (!keeper.uses_clock_) keeper.device_.SetTraceTag(TagOf(queue, number));
}

void TimeKeeper::Appending::BeginRecording(TimeKeeper& keeper, uint32_t queue, uint64_t first,
                                           const std::shared_ptr<const OperationCounts>& counts) {
  keeper_ = &keeper;
  const auto count = static_cast<uint32_t>(counts->size());
  entry_ = {queue, 0, {first, NowNs(), 0, WorkTime::What::kReplayed, count}};
  keeper.device_.SetTraceTag(keeper.TagOfRecording(queue, first, counts));
}

void TimeKeeper::Appending::End() {
  TimeKeeper& keeper = *keeper_;
  if (!keeper.uses_clock_) keeper.device_.SetTraceTag(0);
  entry_.time.ended_ns = NowNs();
  const MutexLock lock(keeper.mutex_);
  keeper.exchange_.Add(entry_);
  if (!keeper.uses_clock_) return;
  entry_.time.what = WorkTime::What::kRan;
  keeper.exchange_.Add(entry_);
}

uint64_t TimeKeeper::TagOfRecording(uint32_t queue, uint64_t first,
                                    std::shared_ptr<const OperationCounts> counts) {
  const MutexLock lock(mutex_);
  const uint64_t tag = kRecording | ++replayed_;
  replays_.Begin(tag, queue, first, std::move(counts));
  return tag;
}

void TimeKeeper::Report(std::span<const xpud_trace_record_t> records) {
  const MutexLock lock(mutex_);
  for (const xpud_trace_record_t& record : records) {
    if ((record.tag & kRecording) == 0) {
      exchange_.Add(EntryOf(record));
      continue;
    }
    const ReplayTimes::Times replay = replays_.Add(record);
    for (const WorkTime& time : replay.times) exchange_.Add({replay.queue, 0, time});
  }
}

}  // namespace xpud::executor::process
