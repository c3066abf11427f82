// The part of ProcessDevice that watches the executor and replaces a lost one.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/process_device.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(1);
constexpr int kMaxFailures = 3;
constexpr auto kMinProbe = std::chrono::seconds(10);  // for a suspect's commands, if no limit is configured

double Milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

std::vector<Verdict> ProcessDevice::Poll() {
  background_.FinishDone();
  if (rings_.online()) TakeTimes();
  switch (state_) {
    case State::kOnline:
      CheckHealth();
      break;
    case State::kReplacing:
      if (replaced_ready_.load(std::memory_order_acquire)) FinishReplacement();
      break;
    case State::kProbing:
      CheckHealth();
      if (state_ == State::kProbing) Probe();
      break;
    case State::kLost:
      break;
  }
  return std::exchange(verdicts_, {});
}

// Sends messages for which the ring had no space earlier.
void ProcessDevice::SendPending() {
  queues_.ForEach([](ProcessQueue& queue) { queue.SendRest(); });
}

void ProcessDevice::CheckHealth() {
  const Clock::time_point now = Clock::now();
  if (now - last_check_ < kCheckInterval) return;
  last_check_ = now;
  const bool ended = process_->Ended();  // must be read before the reason in shared memory
  if (const auto fault = rings_.Fault())
    return Lose(Ending::kFaulted, absl::StrCat("its device faulted: ", *fault));
  if (ended) {
    process_->hung() ? Lose(Ending::kHung, "it did not answer") : Lose(Ending::kEnded, "it ended");
    return;
  }
  SendPending();
  if (options_.command_limit.count() != 0) CheckHang();
}

// The daemon cannot see which command holds up the others. All queues without progress for about as long are
// suspects, and so is the queue that blocks a ring.
void ProcessDevice::CheckHang() {
  const Clock::time_point now = Clock::now();
  const auto limit = options_.command_limit, about = limit * 4 / 5;
  bool over = false;
  std::vector<uint64_t> hung;
  const auto add = [&](const ProcessQueue& queue, Clock::duration age) {
    over |= age >= limit;
    if (age >= about && std::find(hung.begin(), hung.end(), queue.owner()) == hung.end())
      hung.push_back(queue.owner());
  };
  heads_.resize(rings_.count());
  for (size_t r = 0; r < heads_.size(); ++r) {
    const uint64_t taken = rings_.taken(r);
    if (heads_[r].position != taken || taken == rings_.position(r)) heads_[r] = {taken, now};
  }
  queues_.ForEach([&](ProcessQueue& queue) {
    const Head& head = heads_[queue.ring()];
    if (queue.HasUnreachedMark(head.position)) add(queue, now - queue.last_progress());
    if (now - head.since >= limit && queue.Holds(head.position)) add(queue, now - head.since);
  });
  if (!over) return;
  hung_ = std::move(hung);
  Lose(Ending::kHung,
       absl::StrCat(hung_.size() == 1 ? absl::StrCat("a command of session ", hung_[0]) : "a command",
                    " ran for longer than ", limit.count(), " ms"));
}

void ProcessDevice::Lose(Ending ending, const std::string& what) {
  ending_ = ending;
  loss_ = what;
  lost_at_ = Clock::now();
  spdlog::warn("executor_lost device={} pid={} reason=\"{}\"", options_.index, process_->pid(), what);
  state_ = State::kReplacing;
  rings_.TakeOffline();
  StartReplacement();
}

void ProcessDevice::StartReplacement() {
  Process spare;
  {
    MutexLock lock(published_mutex_);
    spare = std::exchange(spare_, nullptr);
  }
  replaced_ready_.store(false);
  if (replacer_.joinable()) replacer_.join();
  const auto replace = [this, dead = process_, spare = std::move(spare), memory = memory_, ending = ending_] {
    replacement_ = Replace(dead, spare, memory, ending);
    replaced_ready_.store(true, std::memory_order_release);
    options_.wake();
    if (ending == Ending::kFaulted) dead->Reap();
  };
  auto started = StartThread("xpud-replace", replace);
  if (started.ok())
    replacer_ = *std::move(started);
  else
    replace();  // the lane waits: its device cannot work before
}

// On the replacer's thread. Uses the spare, or starts a new executor if there is none.
absl::StatusOr<ProcessDevice::Process> ProcessDevice::TakeDevice(Process spare) const {
  if (spare == nullptr || spare->Ended()) {
    ASSIGN_OR_RETURN(spare, ExecutorProcess::Start(*options_.spawner, options_.command));
  }
  if (!spare->has_device()) RETURN_IF_ERROR(spare->TakeDevice());
  return spare;
}

// On the replacer's thread. A lost executor may write to its memory until it has ended, so the next one gets
// the memory after that. The exception is a fault, which stops all work of a device before it is reported
// (drivers/tests/lost_device_test). Beside an endless kernel, creating a context takes seconds, so then the
// next executor takes the device after the end of the old one.
ProcessDevice::Replacement ProcessDevice::Replace(const std::shared_ptr<ExecutorProcess>& dead,
                                                  std::shared_ptr<ExecutorProcess> spare,
                                                  const MemoryMap& memory, Ending ending) const {
  Replacement replacement;
  std::thread reaper;
  if (dead != nullptr && !dead->Ended()) dead->Kill();
  if (dead != nullptr && ending != Ending::kFaulted) {
    const auto reap = [&] { replacement.end = dead->Reap(); };
    auto started = StartThread("xpud-reap", reap);
    if (started.ok())
      reaper = *std::move(started);
    else
      reap();
    if (ending == Ending::kHung && reaper.joinable()) reaper.join();
  }
  replacement.process = TakeDevice(std::move(spare));
  if (reaper.joinable()) reaper.join();
  if (!replacement.process.ok()) return replacement;
  for (const auto& [address, part] : memory) {
    if (part.kind == Memory::Kind::kClient) continue;  // given later; only its owner waits
    const absl::Status status = Give(**replacement.process, address, part);
    if (!status.ok()) {
      replacement.process = status;
      return replacement;
    }
    replacement.memory[address] = part;
  }
  return replacement;
}

void ProcessDevice::FinishReplacement() {
  Replacement replacement = std::exchange(replacement_, {});
  if (process_ != nullptr) {
    // The old executor has ended, so its progress is final.
    queues_.ForEach([&](ProcessQueue& queue) {
      queue.KeepReport();
      queue.Rewind(rings_.taken(queue.ring()));
    });
    if (!hung_.empty()) {
      Suspect(std::exchange(hung_, {}));
    } else {
      if (!replacement.end.text.empty()) absl::StrAppend(&loss_, " (", replacement.end.text, ")");
      FindSuspects(replacement.end.from_outside && !replacement.end.ours);
    }
    rings_.Disconnect();
    process_ = nullptr;
  }
  const absl::Status adopted =
      replacement.process.ok() ? Adopt(std::move(replacement)) : replacement.process.status();
  if (adopted.ok()) {
    failures_ = 0;
    return;
  }
  spdlog::error("executor_not_replaced device={} error=\"{}\"", options_.index,
                std::string(adopted.message()));
  process_ = nullptr;
  if (++failures_ < kMaxFailures) {
    StartReplacement();
    return;
  }
  state_ = State::kLost;
  Publish(nullptr);
  queues_.ForEach([&](ProcessQueue& queue) {
    Blame(queue.owner(), absl::StrCat("the device is lost: ", adopted.message()));
  });
}

// Applies the changes of memory since the replacer began.
absl::Status ProcessDevice::Adopt(Replacement replacement) {
  process_ = *std::move(replacement.process);
  const auto has = [](const MemoryMap& map, uint64_t address, const Memory& memory) {
    const auto found = map.find(address);
    return found != map.end() && found->second == memory;
  };
  for (const auto& [address, part] : replacement.memory) {
    if (!has(memory_, address, part)) TakeBack(*process_, address, part);
  }
  incomplete_.clear();
  for (const auto& [address, part] : memory_) {
    if (part.kind == Memory::Kind::kClient) {
      GiveAgain(address, part);
    } else if (!has(replacement.memory, address, part)) {
      RETURN_IF_ERROR(Give(*process_, address, part));
    }
  }
  kernels_.ForgetLoaded();
  heads_.clear();
  ++replaced_;
  rings_.Connect(process_->rings());
  Publish(process_);
  state_ = suspects_.empty() ? State::kOnline : State::kProbing;
  probe_sent_ = false;
  queues_.ForEach([&](ProcessQueue& queue) {
    if (IsSuspect(queue.owner()) || incomplete_.contains(queue.owner())) return;
    queue.Release();
    queue.SendRest();
  });
  for (size_t r = 0; r < rings_.count(); ++r) rings_.Wake(r);
  spdlog::info("executor_replaced device={} pid={} after_ms={:.0f} suspects={}", options_.index,
               process_->pid(), Milliseconds(Clock::now() - lost_at_), suspects_.size());
  StartSpare();
  return absl::OkStatus();
}

// Importing clients' memory may take long. Meanwhile only the owner's queues are held back.
void ProcessDevice::GiveAgain(uint64_t address, const Memory& memory) {
  ++incomplete_[memory.owner];
  const auto given = std::make_shared<absl::Status>();
  background_.Run([process = process_, address, memory, given] { *given = Give(*process, address, memory); },
                  [this, process = process_, owner = memory.owner, given] {
                    if (process == process_)
                      FinishGiving(owner, *given);  // otherwise the next executor gets it
                  });
}

void ProcessDevice::FinishGiving(uint64_t owner, const absl::Status& given) {
  const auto found = incomplete_.find(owner);
  if (found == incomplete_.end() || absl::IsUnavailable(given))
    return;  // the session is blamed, or the executor is lost
  if (given.ok() && --found->second != 0) return;
  incomplete_.erase(found);
  if (!given.ok()) {
    Blame(owner, absl::StrCat("the replacement executor cannot import its host memory: ", given.message()));
    return;
  }
  if (!rings_.online() || IsSuspect(owner)) return;
  for (ProcessQueue* queue : queues_.Of(owner)) {
    queue->Release();
    queue->SendRest();
    rings_.Wake(queue->ring());
  }
}

bool ProcessDevice::IsSuspect(uint64_t owner) const {
  return std::find(suspects_.begin(), suspects_.end(), owner) != suspects_.end();
}

void ProcessDevice::FindSuspects(bool from_outside) {
  const std::vector<uint64_t> before = std::exchange(suspects_, {});
  if (from_outside) return;
  if (probe_sent_ && !before.empty()) {
    // No other session that is not cleared had work in flight.
    suspects_ = before;
    Blame(before.front(), loss_);
    return;
  }
  std::vector<uint64_t> owners;
  queues_.ForEach([&](ProcessQueue& queue) {
    const bool known = std::ranges::find(owners, queue.owner()) != owners.end();
    if (queue.started() != 0 && !known) owners.push_back(queue.owner());
  });
  Suspect(std::move(owners));
}

void ProcessDevice::Suspect(std::vector<uint64_t> owners) {
  std::map<uint64_t, uint64_t> proven;
  for (const uint64_t owner : owners) {
    proven[owner] = UINT64_MAX;
    for (ProcessQueue* queue : queues_.Of(owner))
      proven[owner] = std::min(proven[owner], queue->MinCompletedRuns());
  }
  std::sort(owners.begin(), owners.end(), [&](uint64_t a, uint64_t b) { return proven[a] > proven[b]; });
  suspects_ = std::move(owners);
  if (suspects_.size() == 1) Blame(uint64_t{suspects_.front()}, loss_);
}

void ProcessDevice::Blame(uint64_t owner, std::string reason) {
  for (ProcessQueue* queue : queues_.Of(owner)) queue->Forget();
  std::erase(suspects_, owner);
  const bool known = std::any_of(verdicts_.begin(), verdicts_.end(),
                                 [&](const Verdict& verdict) { return verdict.owner == owner; });
  if (!known) verdicts_.push_back({owner, std::move(reason)});
}

// Replays the first suspect's commands. When they are done, the suspect continues like the others.
void ProcessDevice::Probe() {
  while (!suspects_.empty() && queues_.Of(suspects_.front()).empty()) ProbeNext();
  if (suspects_.empty()) {
    state_ = State::kOnline;
    return;
  }
  auto* const words = reinterpret_cast<uint64_t*>(probe_words_->address());
  const std::vector<ProcessQueue*> queues = queues_.Of(suspects_.front());
  if (!probe_sent_) {
    if (incomplete_.contains(suspects_.front())) return;  // its memory is not imported yet
    for (ProcessQueue* queue : queues) {
      if (!queue->SendStarted()) return;  // the ring is full
    }
    ++probe_;
    lost_at_ = Clock::now();
    for (ProcessQueue* queue : queues) {
      MessageBuffer mark;
      mark.Add(MessageKind::kWriteValue, queue->slot()).write = {
          reinterpret_cast<uint64_t>(probe_words_->OnDevice(words + queue->slot())), probe_};
      if (!rings_.Send(queue->ring(), mark.bytes())) return;
      rings_.Wake(queue->ring());
    }
    probe_sent_ = true;
  }
  const bool done = std::all_of(queues.begin(), queues.end(), [&](ProcessQueue* queue) {
    return std::atomic_ref<uint64_t>(words[queue->slot()]).load(std::memory_order_acquire) == probe_;
  });
  if (done) {
    spdlog::info("suspect_cleared device={} session={}", options_.index, suspects_.front());
    for (ProcessQueue* queue : queues) {
      queue->Release();
      queue->SendRest();
    }
    ProbeNext();
  } else if (options_.command_limit.count() == 0 && Clock::now() - lost_at_ > kMinProbe) {
    hung_ = {suspects_.front()};
    Lose(Ending::kHung, absl::StrCat("the commands of session ", hung_[0],
                                     " that were in flight when an executor was lost do not finish"));
  }
}

void ProcessDevice::ProbeNext() {
  suspects_.erase(suspects_.begin());
  probe_sent_ = false;
  if (suspects_.size() == 1 && !queues_.Of(suspects_.front()).empty()) {
    Blame(uint64_t{suspects_.front()},
          absl::StrCat(loss_, "; the work in flight of all other sessions was replayed without a fault"));
  }
}

void ProcessDevice::StartSpare() {
  if (starting_spare_.exchange(true)) return;
  if (spare_starter_.joinable()) spare_starter_.join();  // the thread has finished
  const auto end = [this](const absl::Status& status) {
    if (!status.ok())
      spdlog::warn("spare_not_started device={} error=\"{}\"", options_.index, std::string(status.message()));
    starting_spare_.store(false);
  };
  auto started = StartThread("xpud-spare", [this, end] { end(KeepSpare()); });
  if (started.ok())
    spare_starter_ = *std::move(started);
  else
    end(started.status());
}

// A spare without the device takes no device memory. A standby spare has opened the device.
absl::Status ProcessDevice::KeepSpare() {
  {
    MutexLock lock(published_mutex_);
    if (spare_ != nullptr) return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Process spare, ExecutorProcess::Start(*options_.spawner, options_.command));
  if (options_.standby) RETURN_IF_ERROR(spare->TakeDevice());
  std::optional<kernels::Launch> question;
  {
    MutexLock lock(published_mutex_);
    spare_ = spare;  // from now on a standby spare gets the same requests
    question = last_asked_;
  }
  if (options_.standby && question.has_value()) (void)spare->Ask(*question);
  return absl::OkStatus();
}

}  // namespace xpud::executor::process
