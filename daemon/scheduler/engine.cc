#include "daemon/scheduler/engine.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>

#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/transport/futex.h"

namespace xpud::scheduler {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kRoundsPerPoll = 8;
constexpr int kIdlePolls = 64;  // before sleep is considered
constexpr auto kWatchPause = std::chrono::microseconds(30);
constexpr auto kMaxWaitAtEnd = std::chrono::seconds(2);

bool HasGpu(const std::vector<session::DeviceState>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const session::DeviceState& state) {
    return state.device->properties().kind == "gpu";
  });
}

void Watch(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::vector<session::DeviceState> devices,
                                                       Options options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(devices), std::move(options)));
  engine->inbox_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  engine->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!engine->inbox_.valid() || !engine->epoll_.valid())
    return absl::ErrnoToStatus(errno, "eventfd or epoll_create1 failed");
  Watch(engine->epoll_.get(), engine->inbox_.get());
  engine->thread_ = std::thread([raw = engine.get()] { raw->Main(); });
  return engine;
}

Engine::Engine(std::vector<session::DeviceState> devices, Options options)
    : options_(std::move(options)),
      devices_(std::move(devices)),
      spin_(HasGpu(devices_) ? spin::kGpuEngine : spin::kEngine),
      shares_(std::max<size_t>(1, devices_.size()), {FairShare(options_.slice_ns, NowNs), {}}) {}

Engine::~Engine() {
  stopping_.store(true);
  Wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::Wake() { eventfd_write(inbox_.get(), 1); }

void Engine::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  has_tasks_.store(true, std::memory_order_release);
  Wake();
}

void Engine::Call(absl::FunctionRef<void()> task) {
  struct Done {
    Mutex mutex;
    CondVar changed;
    bool done ABSL_GUARDED_BY(mutex) = false;
  } done;
  Post([&] {
    task();
    MutexLock lock(done.mutex);
    done.done = true;
    done.changed.NotifyOne();
  });
  MutexLock lock(done.mutex);
  while (!done.done) done.changed.Wait(done.mutex);
}

void Engine::AddSession(std::unique_ptr<session::Session> session) {
  Watch(epoll_.get(), session->transport().doorbell());
  Turn& turn = turns_.emplace_back(Turn{session.get(), {}});
  for (Shares& shares : shares_) turn.shares.push_back({&shares.appending.Add(), &shares.device.Add()});
  ++counters_.sessions_opened;
  tenants_.Opened(session->peer().tenant);
  NoteSession("session_opened", *session, "");
  sessions_.emplace(session->id(), std::move(session));
}

void Engine::CloseSession(uint64_t id, const std::string& reason) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  found->second->transport().Close(reason);
  NoteSession("session_closed", *found->second, reason);
  const auto turn = std::find_if(turns_.begin(), turns_.end(),
                                 [&](const Turn& t) { return t.session == found->second.get(); });
  for (size_t d = 0; d < shares_.size(); ++d) {
    shares_[d].appending.Remove(*turn->shares[d].appending);
    shares_[d].device.Remove(*turn->shares[d].device);
  }
  turns_.erase(turn);
  std::unique_ptr<session::Session> session = std::move(found->second);
  sessions_.erase(found);
  // Closing our descriptor would not do: the client has another one of the same eventfd, and may ring it.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session->transport().doorbell(), nullptr);
  if (!EndSession(*session)) ending_.push_back(std::move(session));
}

bool Engine::EndSession(session::Session& session) {
  if (!session.End()) return false;
  tenants_.Retire(session);
  return true;
}

TenantTotals::Map Engine::Tenants() const {
  TenantTotals::Map totals = tenants_.retired();
  for (const auto& session : ending_) TenantTotals::Add(*session, totals);
  for (const auto& [id, session] : sessions_) {
    TenantTotals::Add(*session, totals);
    TenantTotals::Total& total = TenantTotals::Of(session->peer().tenant, totals);
    ++total.sessions;
    for (uint32_t d = 0; d < devices_.size(); ++d) total.memory_bytes += session->allocated_bytes(d);
  }
  return totals;
}

void Engine::CloseForFault(uint64_t id, const std::string& reason) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const session::Peer& peer = found->second->peer();
  spdlog::warn("session_closed id={} pid={} tenant={} reason=\"{}\"", id, peer.pid, peer.tenant.Text(),
               reason);
  ++counters_.sessions_closed_for_fault;
  Evict(id, reason);
}

void Engine::Evict(uint64_t id, const std::string& reason) {
  CloseSession(id, reason);
  if (options_.on_breach) options_.on_breach(id);
}

void Engine::SetDrained(bool drained) {
  if (drained == drained_) return;
  drained_ = drained;
  spdlog::info("drain state={}", drained ? "on" : "off");
  events_.Add({.kind = drained ? "drain_on" : "drain_off"});
}

absl::Status Engine::Admits() const {
  if (!drained_) return absl::OkStatus();
  return absl::UnavailableError(
      "it is drained: it takes no new sessions until an operator says `xpuctl drain off`");
}

void Engine::NoteSession(const char* kind, const session::Session& session, std::string text) {
  const session::Peer& peer = session.peer();
  events_.Add({.kind = kind,
               .session = Event::Session{session.id(), peer.pid, peer.tenant, peer.name},
               .text = std::move(text)});
}

void Engine::NoteExecutor(uint32_t index) {
  const executor::Device& device = *devices_[index].device;
  const executor::ExecutorStatus now = device.executor();
  executor::ExecutorStatus& before = executors_[index];
  const bool replaced = now.replaced != before.replaced;
  if (before.pid != 0 && (now.pid == 0 || replaced))
    events_.Add(
        {.kind = "executor_lost", .device = index, .executor_pid = before.pid, .text = device.loss()});
  if (replaced) events_.Add({.kind = "executor_replaced", .device = index, .executor_pid = now.pid});
  before = now;
}

void Engine::PollDevices() {
  alarms_.resize(devices_.size());
  executors_.resize(devices_.size());
  for (uint32_t d = 0; d < devices_.size(); ++d) {
    executor::Device& device = *devices_[d].device;
    for (const executor::Verdict& verdict : device.Poll()) {
      for (const auto& session : ending_) {
        if (session->id() == verdict.owner) session->Abandon(d);
      }
      if (const auto found = sessions_.find(verdict.owner); found != sessions_.end())
        found->second->Abandon(d);
      CloseForFault(verdict.owner, verdict.reason);
    }
    NoteExecutor(d);
    // Another descriptor, maybe with the same number; the closed one has left epoll by itself.
    const Alarm alarm = {device.alarm_fd(), device.executor().replaced};
    if (alarm == alarms_[d]) continue;
    alarms_[d] = alarm;
    if (alarm.fd >= 0) Watch(epoll_.get(), alarm.fd);
  }
}

bool Engine::RunEnding() {
  return std::erase_if(ending_, [&](const auto& session) { return EndSession(*session); }) != 0;
}

bool Engine::RunTasks() {
  if (!has_tasks_.load(std::memory_order_acquire)) return false;
  std::vector<std::function<void()>> tasks;
  {
    MutexLock lock(mutex_);
    tasks.swap(tasks_);
    has_tasks_.store(false, std::memory_order_relaxed);
  }
  for (const auto& task : tasks) task();
  return true;
}

// True when the session or its device worked, or it is held back and will.
absl::StatusOr<bool> Engine::RunTurn(const Turn& turn) {
  session::Session& session = *turn.session;
  const uint64_t before = session.counters().busy_ns;
  session.Poll();
  const uint32_t device = session.current_device();
  Shares& shares = shares_[device];
  if (shares.device.HoldsBack(*turn.shares[device].device)) {
    held_back_ = true;
    session.HoldBack();
    shares.appending.WasIdle(*turn.shares[device].appending);
    return session.counters().busy_ns != before;
  }
  switch (shares.appending.Ask(*turn.shares[device].appending)) {
    case FairShare::Answer::kNotYet:
      held_back_ = true;  // the least served one runs in this round
      session.HoldBack();
      return session.counters().busy_ns != before;
    case FairShare::Answer::kAwaitAnother:
      return true;
    case FairShare::Answer::kRun:
      break;
  }
  ASSIGN_OR_RETURN(const auto progress, session.Run(options_.slice_ns));
  const bool worked = progress == session::Session::Progress::kWorked;
  for (uint32_t d = 0; d < shares_.size(); ++d) {
    FairShare::Account& account = *turn.shares[d].appending;
    if (worked && d == session.current_device())
      shares_[d].appending.Ran(account, session.slice_began_ns(), session.slice_ended_ns());
    else
      shares_[d].appending.WasIdle(account);
  }
  return worked || session.counters().busy_ns != before;
}

void Engine::BeginRound() {
  held_back_ = false;
  for (Shares& shares : shares_) shares.appending.BeginRound();
  if (turns_.size() < 2) return;
  const uint64_t now = NowNs();
  for (size_t d = 0; d < devices_.size(); ++d) {
    if (devices_[d].device->properties().synchronous) continue;
    for (const Turn& turn : turns_)
      shares_[d].device.Update(*turn.shares[d].device, turn.session->work(static_cast<uint32_t>(d)));
    shares_[d].device.BeginRound(now);
  }
}

// A slice of each session whose turn it is. True when any command ran.
bool Engine::RunSessions() {
  BeginRound();
  bool worked = false;
  for (size_t i = 0; i < turns_.size(); ++i) {
    const auto ran = RunTurn(turns_[i]);
    if (ran.ok()) {
      worked |= *ran;
      continue;
    }
    CloseForFault(turns_[i].session->id(), std::string(ran.status().message()));
    --i;
  }
  return worked;
}

bool Engine::AnyUnderWay() const {
  return !ending_.empty() || std::any_of(turns_.begin(), turns_.end(),
                                         [](const Turn& turn) { return turn.session->under_way(); });
}

void Engine::DrainInbox() {
  eventfd_t count;
  eventfd_read(inbox_.get(), &count);
}

void Engine::Sleep() {
  for (const Turn& turn : turns_) turn.session->transport().SayAsleep();
  if (!turns_.empty()) turns_.front().session->transport().BarrierBeforeSleep();
  bool arrived = has_tasks_.load(std::memory_order_acquire);
  for (const Turn& turn : turns_) arrived |= turn.session->transport().HasCommands();
  if (!arrived) {
    epoll_event event;
    epoll_wait(epoll_.get(), &event, 1, -1);
  }
  DrainInbox();
  const uint64_t now = NowNs();
  for (const Turn& turn : turns_) turn.session->Awake(now);
}

void Engine::Main() {
  pthread_setname_np(pthread_self(), "xpud-engine");
  auto last_work = Clock::now();
  int idle_polls = 0;
  unsigned round = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    bool worked = RunTasks();
    if (++round % kRoundsPerPoll == 0) PollDevices();
    worked |= RunSessions();
    if (!ending_.empty()) worked |= RunEnding();
    if (worked) {
      idle_polls = 0;
      continue;
    }
    if (idle_polls++ == 0) last_work = Clock::now();
    const Clock::time_point now = Clock::now();
    const bool spin = spin_.Continues(last_work, now);
    if (held_back_ || AnyUnderWay()) {
      // A device reports to memory and wakes nobody: look often while an answer is near, then less often.
      if (!spin && !spin::kDeviceWatch.Continues(last_work, now)) std::this_thread::sleep_for(kWatchPause);
      continue;
    }
    for (int i = 0; i < 16; ++i) transport::CpuRelax();
    // Both: a thread that was off its core for a while has seen no clock tick of idleness.
    if (idle_polls < kIdlePolls || spin) continue;
    Sleep();
    PollDevices();
    idle_polls = 0;
  }
  while (!turns_.empty()) CloseSession(turns_.back().session->id(), "the xpud daemon is ending");
  const auto until = Clock::now() + kMaxWaitAtEnd;
  while (!ending_.empty() && Clock::now() < until) {
    PollDevices();
    RunEnding();
  }
  ending_.clear();
  RunTasks();
  devices_.clear();
}

}  // namespace xpud::scheduler
