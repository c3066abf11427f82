#include "daemon/lane/lane.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/transport/futex.h"

namespace xpud::lane {
namespace {

using Clock = std::chrono::steady_clock;
using session::DeviceSession;

constexpr unsigned kRoundsPerPoll = 8;
constexpr int kIdlePolls = 64;  // before sleep is considered
// Between two polls of a device, after the time that spin::kDeviceWatch states.
constexpr std::chrono::microseconds kWatchPause{30};
// Between two looks at other lanes that sessions wait for: doubles with each look.
constexpr long kMinPeerPauseNs = 30'000, kMaxPeerPauseNs = 1'000'000;
constexpr auto kMaxWaitAtEnd = std::chrono::seconds(2);

void AddToEpoll(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Lane>> Lane::Create(stream::DeviceState state, uint32_t index,
                                                   session::Registry& registry, Options options) {
  std::unique_ptr<Lane> lane(new Lane(std::move(state), index, registry, std::move(options)));
  lane->inbox_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  lane->epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!lane->inbox_.valid() || !lane->epoll_.valid())
    return absl::ErrnoToStatus(errno, "eventfd or epoll_create1 failed");
  AddToEpoll(lane->epoll_.get(), lane->inbox_.get());
  ASSIGN_OR_RETURN(lane->thread_,
                   StartThread(absl::StrCat("xpud-lane-", index), [raw = lane.get()] { raw->Main(); }));
  return lane;
}

Lane::Lane(stream::DeviceState state, uint32_t index, session::Registry& registry, Options options)
    : options_(std::move(options)),
      index_(index),
      registry_(registry),
      state_(std::move(state)),
      properties_(state_.device->properties()),
      spin_(properties_.kind == "gpu" ? spin::kGpuLane : spin::kLane),
      policy_(*options_.policy),
      profiles_(*state_.device, [this] { Wake(); }),
      stalls_(options_.stall_ns, index, registry.events()) {}

void Lane::Stop() {
  stopping_.store(true);
  Wake();
  if (thread_.joinable()) thread_.join();
  profiles_.EndThread();
}

void Lane::Wake() { eventfd_write(inbox_.get(), 1); }

void Lane::Post(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  has_tasks_.store(true, std::memory_order_release);
  Wake();
}

void Lane::Call(absl::FunctionRef<void()> task) {
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

void Lane::Visit(absl::FunctionRef<void()> task) {
  MutexLock lock(visits_mutex_);
  const uint64_t now = NowNs(), due = reader_budget_.due_ns();
  if (now < due) std::this_thread::sleep_for(std::chrono::nanoseconds(due - now));
  uint64_t began = 0, ended = 0;
  Call([&] {
    began = NowNs();
    task();
    ended = NowNs();
  });
  reader_budget_.Spend(began, ended);
}

absl::Status Lane::Open(const std::shared_ptr<session::Session>& session,
                        const std::shared_ptr<transport::ServerTransport>& transport) {
  if (session->is_closed()) return absl::UnavailableError("the session is closed");
  if (Find(session->id()) != nullptr) return absl::AlreadyExistsError("the session uses this device already");
  ASSIGN_OR_RETURN(auto opened,
                   DeviceSession::Create(session, index_, state_, transport, registry_.table_space()));
  if (const auto quota = session->quota(index_)) state_.pool->ledger().SetQuota(opened->account(), quota);
  session->SetOpen(index_, transport);
  AddToEpoll(epoll_.get(), opened->transport().doorbell());
  profiles_.Add(*opened);
  sessions_.emplace(session->id(), opened.get());
  turns_.push_back({std::move(opened), &policy_.Add(scheduler::Policy::Class::kNormal, session->peer().tenant,
                                                    scheduler::Policy::kNormalWeight)});
  return absl::OkStatus();
}

void Lane::Close(uint64_t id, const std::string& reason, bool fault) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  found->second->transport().Close(reason, ends_ ? transport::kDaemonEnded : transport::kSessionClosed);
  profiles_.Remove(*found->second);
  Archive(*found->second, reason, fault);
  const auto turn = std::find_if(turns_.begin(), turns_.end(),
                                 [&](const Turn& each) { return each.session.get() == found->second; });
  sessions_.erase(found);
  policy_.Remove(*turn->account);
  std::unique_ptr<DeviceSession> session = std::move(turn->session);
  turns_.erase(turn);
  // Closing our descriptor would not do: the client has another one of the same eventfd, and may signal it.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session->transport().doorbell(), nullptr);
  if (!EndSession(*session)) ending_.push_back(std::move(session));
}

void Lane::Archive(DeviceSession& session, const std::string& reason, bool fault) {
  session.TakeTimes();
  const DeviceSession::WaitState state = session.wait_state();
  const bool unfinished = state.has_commands || state.device_works;
  const session::Peer& peer = session.peer();
  auto dropped =
      ended_.Add({.id = session.id(),
                  .pid = peer.pid,
                  .tenant = peer.tenant,
                  .name = peer.name,
                  .reason = reason,
                  .ended_ns = NowNs(),
                  .completed = session.counters().commands_completed,
                  .waited_for = state.has_commands ? records::Describe(state.stall, state.row) : "",
                  .recorder = session.TakeRecorder()});
  for (auto& profile : dropped) profiles_.Drop(std::move(profile));
  if (fault || unfinished) options_.on_crash(index_, ended_.sessions().back());
}

session::DeviceSession* Lane::Find(uint64_t session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

void Lane::ForEach(absl::FunctionRef<void(const DeviceSession&)> visit) const {
  for (const Turn& turn : turns_) visit(*turn.session);
}

bool Lane::EndSession(DeviceSession& session) {
  if (!session.End()) return false;
  tenants_.Of(session.peer().tenant).counters += session.counters();
  return true;
}

bool Lane::RunEnding() {
  return std::erase_if(ending_, [&](const auto& session) { return EndSession(*session); }) != 0;
}

TenantTotals Lane::Tenants() const {
  TenantTotals totals = tenants_;
  for (const auto& session : ending_) totals.Of(session->peer().tenant).counters += session->counters();
  for (const Turn& turn : turns_) {
    TenantTotal& total = totals.Of(turn.session->peer().tenant);
    total.counters += turn.session->counters();
    total.memory_bytes += turn.session->allocated_bytes();
  }
  return totals;
}

void Lane::CloseForFault(uint64_t session, const std::string& reason) {
  Close(session, reason, /*fault=*/true);
  options_.on_fault(session, reason);
}

void Lane::NoteExecutor() {
  const executor::ExecutorStatus now = state_.device->executor();
  const bool replaced = now.replaced != executor_.replaced;
  if (executor_.pid != 0 && (now.pid == 0 || replaced)) {
    registry_.events().Add({.kind = "executor_lost",
                            .device = index_,
                            .executor_pid = executor_.pid,
                            .text = state_.device->loss()});
  }
  if (replaced)
    registry_.events().Add({.kind = "executor_replaced", .device = index_, .executor_pid = now.pid});
  executor_ = now;
}

std::string Lane::OthersAtWork(const DeviceSession& session) const {
  constexpr int kNamed = 3;
  std::string text;
  int others = 0;
  for (const Turn& turn : turns_) {
    const DeviceSession& other = *turn.session;
    const DeviceSession::WaitState state = other.wait_state();
    if (&other == &session || !(state.has_commands || state.device_works) || ++others > kNamed) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", "session ", other.id(), " (", other.peer().name, ", ",
                    other.peer().tenant.Text(), ")");
  }
  if (others > kNamed) absl::StrAppend(&text, " and ", others - kNamed, " more");
  return text;
}

void Lane::WatchStalls() {
  const uint64_t now = NowNs();
  if (!stalls_.IsDue(now)) return;
  for (const Turn& turn : turns_) {
    const DeviceSession& session = *turn.session;
    stalls_.Look(session.peer(), session.id(), session.wait_state(), now,
                 [&] { return OthersAtWork(session); });
  }
  stalls_.Looked(now);
}

void Lane::PollDevice() {
  WatchStalls();
  for (const executor::Verdict& verdict : state_.device->Poll()) {
    for (const auto& session : ending_) {
      if (session->id() == verdict.owner) session->Abandon();
    }
    if (DeviceSession* session = Find(verdict.owner)) session->Abandon();
    CloseForFault(verdict.owner, verdict.reason);
  }
  profiles_.Poll();
  NoteExecutor();
  // Another descriptor, maybe with the same number; the closed one has left epoll by itself.
  const Alarm alarm = {state_.device->alarm_fd(), state_.device->executor().replaced};
  if (alarm == alarm_) return;
  alarm_ = alarm;
  if (alarm.fd >= 0) AddToEpoll(epoll_.get(), alarm.fd);
}

bool Lane::RunTasks() {
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

absl::StatusOr<bool> Lane::RunTurn(const Turn& turn) {
  DeviceSession& session = *turn.session;
  const uint64_t before = session.counters().busy_ns;
  session.Poll();
  switch (policy_.Decide(*turn.account)) {
    case scheduler::Policy::Answer::kHoldBack:
      held_back_ = true;
      session.HoldBack();
      return session.counters().busy_ns != before;
    case scheduler::Policy::Answer::kAwaitAnother:
      return true;
    case scheduler::Policy::Answer::kRun:
      break;
  }
  ASSIGN_OR_RETURN(const auto progress, session.Run(options_.slice_ns));
  const bool worked = progress == DeviceSession::Progress::kWorked;
  if (worked)
    policy_.Ran(*turn.account, session.slice_began_ns(), session.slice_ended_ns());
  else
    policy_.WasIdle(*turn.account);
  return worked || session.counters().busy_ns != before;
}

bool Lane::RunSessions() {
  held_back_ = false;
  if (turns_.empty()) return false;
  for (const Turn& turn : turns_) policy_.Update(*turn.account, turn.session->work());
  policy_.BeginRound(NowNs());
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

Lane::Pending Lane::FindPending() const {
  if (held_back_ || !ending_.empty() || profiles_.is_settling()) return Pending::kDevice;
  Pending pending = Pending::kNothing;
  for (const Turn& turn : turns_) {
    if (!turn.session->under_way()) continue;
    if (!turn.session->awaits_peer_only()) return Pending::kDevice;
    pending = Pending::kPeer;
  }
  return pending;
}

bool Lane::Sleep(const timespec* timeout) {
  for (const Turn& turn : turns_) turn.session->transport().SayAsleep();
  if (!turns_.empty()) turns_.front().session->transport().BarrierBeforeSleep();
  bool arrived = has_tasks_.load(std::memory_order_acquire);
  for (const Turn& turn : turns_) arrived |= turn.session->HasCommands();
  if (!arrived) {
    pollfd readable = {epoll_.get(), POLLIN, 0};
    arrived = ppoll(&readable, 1, timeout, nullptr) != 0;
  }
  eventfd_t count;
  eventfd_read(inbox_.get(), &count);
  const uint64_t now = NowNs();
  for (const Turn& turn : turns_) turn.session->Awake(now);
  return arrived;
}

void Lane::Main() {
  auto last_work = Clock::now();
  int idle_polls = 0;
  long peer_pause_ns = kMinPeerPauseNs;
  unsigned round = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    bool worked = RunTasks();
    if (++round % kRoundsPerPoll == 0) PollDevice();
    worked |= RunSessions();
    if (!ending_.empty()) worked |= RunEnding();
    if (worked) {
      idle_polls = 0;
      continue;
    }
    if (idle_polls++ == 0) {
      last_work = Clock::now();
      peer_pause_ns = kMinPeerPauseNs;
    }
    const Clock::time_point now = Clock::now();
    const bool spins = spin_.Continues(last_work, now);
    const Pending pending = FindPending();
    if (pending == Pending::kDevice) {
      // A device reports to memory and wakes no thread: poll often while an answer is likely, then less
      // often.
      if (!spins && !spin::kDeviceWatch.Continues(last_work, now)) std::this_thread::sleep_for(kWatchPause);
      continue;
    }
    for (int i = 0; i < 16; ++i) transport::CpuRelax();
    // Both conditions: a thread that was off its core for a while has not observed that time as idle.
    if (idle_polls < kIdlePolls || spins) continue;
    timespec pause = {0, peer_pause_ns};
    const bool watched = stalls_.watches() && std::ranges::any_of(turns_, [](const Turn& turn) {
                           return turn.session->wait_state().since_ns != 0;
                         });
    if (watched && pending != Pending::kPeer) {
      const uint64_t period = std::max(stalls_.period_ns(), uint64_t{100'000'000});
      pause = {static_cast<time_t>(period / 1'000'000'000), static_cast<long>(period % 1'000'000'000)};
    }
    const bool arrived = Sleep(watched || pending == Pending::kPeer ? &pause : nullptr);
    PollDevice();
    if (arrived) idle_polls = 0;
    peer_pause_ns = std::min(2 * peer_pause_ns, kMaxPeerPauseNs);
  }
  ends_ = true;
  while (!turns_.empty()) Close(turns_.back().session->id(), "the xpud daemon is ending");
  const auto until = Clock::now() + kMaxWaitAtEnd;
  while (!ending_.empty() && Clock::now() < until) {
    PollDevice();
    RunEnding();
  }
  ending_.clear();
  RunTasks();
  profiles_.FinishSettling();
  // On this thread. The members end in reverse order; assignment would end the device first.
  const stream::DeviceState last = std::move(state_);
}

}  // namespace xpud::lane
