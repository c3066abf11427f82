// ProcessDevice's part that watches over the executor and replaces a lost one.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/executor/process/process_device.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr auto kCheckInterval = std::chrono::milliseconds(1);
constexpr int kMaxFailures = 3;
constexpr auto kMinProbe =
    std::chrono::seconds(10);  // a suspect's commands may take, where there is no limit

double Milliseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

std::vector<Verdict> ProcessDevice::Poll() {
  background_.FinishDone();
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

// Sends what an earlier round had no room for.
void ProcessDevice::Pump() {
  for (ProcessQueue* queue : queues_) {
    if (queue != nullptr && online()) queue->SendRest();
  }
}

void ProcessDevice::CheckHealth() {
  const Clock::time_point now = Clock::now();
  if (now - last_check_ < kCheckInterval) return;
  last_check_ = now;
  const bool ended = process_->Ended();  // before its last words are looked for
  for (size_t r = 0; r < rings(); ++r) {
    const RingControl& control = process_->ring(r).control();
    if (control.state.load(std::memory_order_acquire) == static_cast<uint32_t>(ExecutorState::kDeviceLost)) {
      Lose(Ending::kFaulted, absl::StrCat("its device faulted: ", transport::GetText(control.reason)));
      return;
    }
  }
  if (ended) {
    process_->hung() ? Lose(Ending::kHung, "it did not answer") : Lose(Ending::kEnded, "it ended");
    return;
  }
  Pump();
  if (options_.command_limit.count() != 0) CheckHang();
}

// Whose commands hold up others is not to be seen from outside: all that made no progress for about as long
// are suspects, and who is in the way of a ring.
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
  heads_.resize(rings());
  for (size_t r = 0; r < rings(); ++r) {
    const uint64_t taken = Taken(r);
    if (heads_[r].position != taken || taken == position(r)) heads_[r] = {taken, now};
    for (ProcessQueue* queue : queues_) {
      if (queue == nullptr || queue->ring() != r) continue;
      if (queue->Awaited(taken)) add(*queue, now - queue->last_progress());
      if (now - heads_[r].since >= limit && queue->Holds(taken)) add(*queue, now - heads_[r].since);
    }
  }
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
  replacer_ = std::thread(
      [this, dead = process_, spare = std::move(spare), memory = memory_, ending = ending_]() mutable {
        replacement_ = Replace(dead, std::move(spare), memory, ending);
        replaced_ready_.store(true, std::memory_order_release);
        options_.wake();
        if (ending == Ending::kFaulted) dead->Reap();
      });
}

// The replacer's thread: the spare, or a new one where there is none.
absl::StatusOr<ProcessDevice::Process> ProcessDevice::TakeDevice(Process spare) const {
  if (spare == nullptr || spare->Ended()) {
    ASSIGN_OR_RETURN(spare, ExecutorProcess::Start(*options_.spawner, options_.command));
  }
  if (!spare->has_device()) RETURN_IF_ERROR(spare->TakeDevice());
  return spare;
}

// The replacer's thread. A lost executor may write to its memory until it has ended, so the next one gets the
// memory after that; but for a fault, which ends all of a device's work before it is known
// (drivers/tests/lost_device_test). Beside an endless kernel a context takes seconds, so then the next one
// takes the device after its end, too.
ProcessDevice::Replacement ProcessDevice::Replace(const std::shared_ptr<ExecutorProcess>& dead,
                                                  std::shared_ptr<ExecutorProcess> spare,
                                                  const MemoryMap& memory, Ending ending) const {
  Replacement replacement;
  std::thread reaper;
  if (dead != nullptr && !dead->Ended()) dead->Kill();
  if (dead != nullptr && ending != Ending::kFaulted) {
    reaper = std::thread([&] { replacement.end = dead->Reap(); });
    if (ending == Ending::kHung) reaper.join();
  }
  replacement.process = TakeDevice(std::move(spare));
  if (reaper.joinable()) reaper.join();
  if (!replacement.process.ok()) return replacement;
  for (const auto& [address, part] : memory) {
    if (part.kind == Memory::Kind::kClient) continue;  // later: only its owner waits for it
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
    // What it did is all that it will have done.
    for (ProcessQueue* queue : queues_) {
      if (queue == nullptr) continue;
      queue->KeepReport();
      queue->Rewind(Taken(queue->ring()));
    }
    if (!hung_.empty()) {
      Suspect(std::exchange(hung_, {}));
    } else {
      if (!replacement.end.text.empty()) absl::StrAppend(&loss_, " (", replacement.end.text, ")");
      FindSuspects(replacement.end.from_outside && !replacement.end.ours);
    }
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
  for (ProcessQueue* queue : queues_) {
    if (queue != nullptr) Blame(queue->owner(), absl::StrCat("the device is lost: ", adopted.message()));
  }
}

// Memory that came or went since the replacer began is given and taken here.
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
  for (KernelRecord& record : kernels_) record.loaded = 0;
  for (auto& [image, record] : modules_) record.loaded = 0;
  heads_.clear();
  ++replaced_;
  Publish(process_);
  state_ = suspects_.empty() ? State::kOnline : State::kProbing;
  probe_sent_ = false;
  for (ProcessQueue* queue : queues_) {
    if (queue == nullptr || IsSuspect(queue->owner()) || incomplete_.contains(queue->owner())) continue;
    queue->Release();
    queue->SendRest();
  }
  for (size_t r = 0; r < rings(); ++r) WakeExecutor(r);
  spdlog::info("executor_replaced device={} pid={} after_ms={:.0f} suspects={}", options_.index,
               process_->pid(), Milliseconds(Clock::now() - lost_at_), suspects_.size());
  StartSpare();
  return absl::OkStatus();
}

// Clients' memory may take long: meanwhile only the queues of its owner are held.
void ProcessDevice::GiveAgain(uint64_t address, const Memory& memory) {
  ++incomplete_[memory.owner];
  const auto given = std::make_shared<absl::Status>();
  background_.Run([process = process_, address, memory, given] { *given = Give(*process, address, memory); },
                  [this, process = process_, owner = memory.owner, given] {
                    if (process == process_) FinishGiving(owner, *given);  // else the next one is given it
                  });
}

void ProcessDevice::FinishGiving(uint64_t owner, const absl::Status& given) {
  const auto found = incomplete_.find(owner);
  if (found == incomplete_.end() || absl::IsUnavailable(given)) return;  // condemned; or the executor is lost
  if (given.ok() && --found->second != 0) return;
  incomplete_.erase(found);
  if (!given.ok()) {
    Blame(owner, absl::StrCat("the next executor cannot have its host memory: ", given.message()));
    return;
  }
  if (!online() || IsSuspect(owner)) return;
  for (ProcessQueue* queue : QueuesOf(owner)) {
    queue->Release();
    queue->SendRest();
    WakeExecutor(queue->ring());
  }
}

bool ProcessDevice::IsSuspect(uint64_t owner) const {
  return std::find(suspects_.begin(), suspects_.end(), owner) != suspects_.end();
}

std::vector<ProcessQueue*> ProcessDevice::QueuesOf(uint64_t owner) const {
  std::vector<ProcessQueue*> found;
  std::copy_if(queues_.begin(), queues_.end(), std::back_inserter(found),
               [&](ProcessQueue* queue) { return queue != nullptr && queue->owner() == owner; });
  return found;
}

void ProcessDevice::FindSuspects(bool from_outside) {
  const std::vector<uint64_t> before = std::exchange(suspects_, {});
  if (from_outside) return;
  if (probe_sent_ && !before.empty()) {
    // It alone of those that are not cleared had anything under way.
    suspects_ = before;
    Blame(before.front(), loss_);
    return;
  }
  std::vector<uint64_t> owners;
  for (ProcessQueue* queue : queues_) {
    const bool known =
        queue != nullptr && std::find(owners.begin(), owners.end(), queue->owner()) != owners.end();
    if (queue != nullptr && queue->started() != 0 && !known) owners.push_back(queue->owner());
  }
  Suspect(std::move(owners));
}

void ProcessDevice::Suspect(std::vector<uint64_t> owners) {
  std::map<uint64_t, uint64_t> proven;
  for (const uint64_t owner : owners) {
    proven[owner] = UINT64_MAX;
    for (ProcessQueue* queue : QueuesOf(owner)) proven[owner] = std::min(proven[owner], queue->LeastProven());
  }
  std::sort(owners.begin(), owners.end(), [&](uint64_t a, uint64_t b) { return proven[a] > proven[b]; });
  suspects_ = std::move(owners);
  if (suspects_.size() == 1) Blame(uint64_t{suspects_.front()}, loss_);
}

void ProcessDevice::Blame(uint64_t owner, std::string reason) {
  for (ProcessQueue* queue : QueuesOf(owner)) queue->Forget();
  std::erase(suspects_, owner);
  const bool known = std::any_of(verdicts_.begin(), verdicts_.end(),
                                 [&](const Verdict& verdict) { return verdict.owner == owner; });
  if (!known) verdicts_.push_back({owner, std::move(reason)});
}

// Runs the first suspect's commands again; when they are done, it goes on like the others.
void ProcessDevice::Probe() {
  while (!suspects_.empty() && QueuesOf(suspects_.front()).empty()) ProbeNext();
  if (suspects_.empty()) {
    state_ = State::kOnline;
    return;
  }
  auto* const words = reinterpret_cast<uint64_t*>(probe_words_->address());
  const std::vector<ProcessQueue*> queues = QueuesOf(suspects_.front());
  if (!probe_sent_) {
    if (incomplete_.contains(suspects_.front())) return;  // it does not have its memory yet
    for (ProcessQueue* queue : queues) {
      if (!queue->SendStarted()) return;  // no room yet
    }
    ++probe_;
    lost_at_ = Clock::now();
    for (ProcessQueue* queue : queues) {
      MessageBuffer mark;
      mark.Add(MessageKind::kWriteValue, queue->slot()).write = {
          reinterpret_cast<uint64_t>(probe_words_->OnDevice(words + queue->slot())), probe_};
      if (!Send(queue->ring(), mark.bytes())) return;
      WakeExecutor(queue->ring());
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
    Lose(Ending::kHung,
         absl::StrCat("the commands of session ", hung_[0], " that an executor was lost with do not end"));
  }
}

void ProcessDevice::ProbeNext() {
  suspects_.erase(suspects_.begin());
  probe_sent_ = false;
  if (suspects_.size() == 1 && !QueuesOf(suspects_.front()).empty()) {
    Blame(uint64_t{suspects_.front()},
          absl::StrCat(loss_, "; what the other sessions had begun ran again without harm"));
  }
}

void ProcessDevice::StartSpare() {
  if (starting_spare_.exchange(true)) return;
  if (spare_starter_.joinable()) spare_starter_.join();  // it has ended
  spare_starter_ = std::thread([this] {
    const absl::Status started = KeepSpare();
    if (!started.ok()) {
      spdlog::warn("spare_not_started device={} error=\"{}\"", options_.index,
                   std::string(started.message()));
    }
    starting_spare_.store(false);
  });
}

// Without the device it takes none of the device's memory. With it, it stands by.
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
    spare_ = spare;  // from here on, if it stands by, it is asked what is asked
    question = last_asked_;
  }
  if (options_.standby && question.has_value()) (void)spare->Ask(*question);
  return absl::OkStatus();
}

}  // namespace xpud::executor::process
