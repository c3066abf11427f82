#include "daemon/compiler/compile_desk.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "proto/base/clock.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::compiler {
namespace {

// A processor is left to what clients run.
CompileTurns::Limits LimitsHere() {
  const size_t processors = std::thread::hardware_concurrency();
  return {.at_once = std::clamp<size_t>(processors, 2, CompileDesk::kMaxAtOnce + 1) - 1};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CompileDesk>> CompileDesk::Start(CompileProcess& process) {
  UniqueFd wakes(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wakes.valid()) return absl::ErrnoToStatus(errno, "eventfd failed");
  std::unique_ptr<CompileDesk> desk(new CompileDesk(process, std::move(wakes)));
  ASSIGN_OR_RETURN(desk->thread_, StartThread("xpud-compiles", [raw = desk.get()] { raw->Serve(); }));
  return desk;
}

CompileDesk::CompileDesk(CompileProcess& process, UniqueFd wakes)
    : process_(process), wakes_(std::move(wakes)), turns_(LimitsHere()) {}

uint64_t CompileDesk::Compile(Job job) {
  MutexLock lock(mutex_);
  const uint64_t number = ++last_job_;
  turns_.Add(number, job.waiters);
  jobs_.emplace(number, std::move(job));
  Wake();
  return number;
}

void CompileDesk::Join(uint64_t job, const Waiter& waiter) {
  MutexLock lock(mutex_);
  turns_.Join(job, waiter);
  Wake();
}

void CompileDesk::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    Wake();
  }
  if (thread_.joinable()) thread_.join();
}

CompileDesk::State CompileDesk::state() const {
  MutexLock lock(mutex_);
  State state = counts_;
  state.process = process_.state();
  state.running = turns_.running();
  state.overdue = turns_.Overdue(NowNs());
  state.waiting = turns_.waiting();
  return state;
}

void CompileDesk::Wake() {
  const uint64_t one = 1;
  (void)!write(wakes_.get(), &one, sizeof(one));
}

// ---- the thread

void CompileDesk::Serve() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return running_.clear();
    }
    DropAbandoned();
    StartWhatMay();
    Wait();
  }
}

void CompileDesk::DropAbandoned() {
  std::vector<Done> dropped;
  {
    MutexLock lock(mutex_);
    for (const uint64_t job : turns_.TakeAbandoned())
      dropped.push_back(std::move(jobs_.extract(job).mapped().done));
    const uint64_t now = NowNs();
    for (const uint64_t job : turns_.AbandonedWhileRunning(now)) {
      counts_.compile_ns += turns_.End(job, now);
      dropped.push_back(std::move(running_.extract(job).mapped().done));
    }
  }
  for (const Done& done : dropped) done(absl::CancelledError("nobody waits for this kernel"), 0);
}

void CompileDesk::StartWhatMay() {
  const auto next = [this]() -> std::optional<std::pair<uint64_t, Job>> {
    MutexLock lock(mutex_);
    const std::optional<uint64_t> number = turns_.Start(NowNs());
    if (!number) return std::nullopt;
    return std::pair(*number, std::move(jobs_.extract(*number).mapped()));
  };
  while (auto started = next()) {
    auto& [number, job] = *started;
    absl::StatusOr<Compilation> begun = process_.Begin(job.target, job.request);
    if (begun.ok())
      running_.emplace(number, Running{*std::move(begun), std::move(job.done)});
    else
      Finish(number, job.done, begun.status());
  }
}

void CompileDesk::Wait() {
  std::vector<pollfd> fds = {{wakes_.get(), POLLIN, 0}};
  uint64_t now = NowNs(), due = UINT64_MAX;
  {
    MutexLock lock(mutex_);
    if (turns_.waiting() != 0) due = turns_.DueNs(now);
  }
  for (const auto& [number, one] : running_) {
    fds.push_back({one.compilation.fd(), one.compilation.events(), 0});
    due = std::min(due, one.compilation.deadline_ns());
  }
  const int timeout = due == UINT64_MAX ? -1 : due <= now ? 0 : static_cast<int>((due - now) / 1'000'000) + 1;
  if (poll(fds.data(), fds.size(), timeout) < 0) return;
  uint64_t ignored;
  if (fds[0].revents != 0) (void)!read(wakes_.get(), &ignored, sizeof(ignored));
  now = NowNs();
  size_t at = 1;
  for (auto next = running_.begin(); next != running_.end();) {
    const auto one = next++;
    if (fds[at++].revents == 0 && now < one->second.compilation.deadline_ns()) continue;
    std::optional<absl::StatusOr<std::string>> code = one->second.compilation.Continue(now);
    if (!code) continue;
    const Done done = std::move(one->second.done);
    const uint64_t number = one->first;
    running_.erase(one);
    Finish(number, done, *std::move(code));
  }
}

void CompileDesk::Finish(uint64_t job, const Done& done, absl::StatusOr<std::string> code) {
  uint64_t took;
  {
    MutexLock lock(mutex_);
    took = turns_.End(job, NowNs());
    ++(code.ok() ? counts_.compiled : counts_.failed);
    counts_.compile_ns += took;
  }
  done(std::move(code), took);
}

}  // namespace xpud::compiler
