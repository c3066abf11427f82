#include "daemon/executor/process/time_keeper.h"

#include <algorithm>
#include <utility>

#include "daemon/executor/process/messages.h"
#include "kernels/library/host_modules.h"
#include "proto/base/clock.h"

namespace xpud::executor::process {
namespace {

constexpr int kFlushMs = 20, kLongMs = 60'000;
constexpr size_t kMaxReplays = 4096;  // an operation whose report was lost leaves its replay incomplete

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
    if (wanted != done) {
      Turn(TimesExchange::IsOn(wanted));
      exchange_.Reach(wanted, on());
    }
    if (on() && !uses_clock_) (void)device_.FlushTrace();
    done = wanted;
  }
}

void TimeKeeper::Turn(bool on) {
  if (uses_clock_ || !device_.traces()) return on_.store(on && uses_clock_);
  if (on == this->on()) return (void)(on && device_.FlushTrace().ok());
  if (!on) {
    on_.store(false);
    (void)device_.StopTrace();
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
  if (keeper.uses_clock_)
    entry_ = {queue, 0, {number, NowNs(), 0}};
  else
    keeper.device_.SetTraceTag(TagOf(queue, number));
}

void TimeKeeper::Appending::End() {
  if (!keeper_->uses_clock_) return keeper_->device_.SetTraceTag(0);
  entry_.time.ended_ns = NowNs();
  keeper_->Add(entry_);
}

uint64_t TimeKeeper::TagOfRecording(uint32_t queue, uint64_t first,
                                    std::shared_ptr<const OperationCounts> counts) {
  const MutexLock lock(mutex_);
  if (replays_.size() == kMaxReplays) replays_.erase(replays_.begin());
  const uint64_t tag = kRecording | ++replayed_;
  replays_[tag] = {queue, first, std::move(counts), {}};
  return tag;
}

void TimeKeeper::Report(std::span<const xpud_trace_record_t> records) {
  const MutexLock lock(mutex_);
  for (const xpud_trace_record_t& record : records) {
    if ((record.tag & kRecording) != 0)
      ReportReplay(record.tag, record);
    else
      exchange_.Add(EntryOf(record));
  }
}

// The operations of a recording run one after the other. Once all are reported, their order says whose each
// one is.
void TimeKeeper::ReportReplay(uint64_t tag, const xpud_trace_record_t& record) {
  const auto found = replays_.find(tag);
  if (found == replays_.end()) return;
  Replay& replay = found->second;
  replay.operations.push_back(record);
  if (replay.operations.size() < replay.counts->back()) return;
  std::ranges::sort(replay.operations, {}, &xpud_trace_record_t::began_ns);
  uint64_t launch = 0;
  for (size_t i = 0; i < replay.operations.size(); ++i) {
    while ((*replay.counts)[launch] <= i) ++launch;
    const auto& [_, began, ended] = replay.operations[i];
    exchange_.Add({replay.queue, 0, {replay.first + launch, began, ended}});
  }
  replays_.erase(found);
}

void TimeKeeper::Add(const TimesExchange::Entry& entry) {
  const MutexLock lock(mutex_);
  exchange_.Add(entry);
}

}  // namespace xpud::executor::process
