#include "daemon/lane/lane.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/tenant/nice.h"
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
constexpr uint64_t kMinPeerPauseNs = 30'000, kMaxPeerPauseNs = 1'000'000;
constexpr auto kMaxWaitAtEnd = std::chrono::seconds(2);

// With the data 0: see Turns.
void AddToEpoll(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Lane>> Lane::Create(stream::DeviceState state, uint32_t index,
                                                   session::Registry& registry, Options options) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC)), inbox(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!inbox.valid() || !epoll.valid()) return absl::ErrnoToStatus(errno, "eventfd or epoll_create1 failed");
  std::unique_ptr<Lane> lane(
      new Lane(std::move(state), index, registry, std::move(options), std::move(epoll), std::move(inbox)));
  AddToEpoll(lane->epoll_.get(), lane->inbox_.get());
  if (const int alarm = lane->state_.device->alarm_fd(); alarm >= 0) AddToEpoll(lane->epoll_.get(), alarm);
  ASSIGN_OR_RETURN(lane->thread_,
                   StartThread(absl::StrCat("xpud-lane-", index), [raw = lane.get()] { raw->Main(); }));
  return lane;
}

Lane::Lane(stream::DeviceState state, uint32_t index, session::Registry& registry, Options options,
           UniqueFd epoll, UniqueFd inbox)
    : options_(std::move(options)),
      index_(index),
      registry_(registry),
      inbox_(std::move(inbox)),
      epoll_(std::move(epoll)),
      state_(std::move(state)),
      properties_(state_.device->properties()),
      spin_(properties_.kind == "gpu" ? spin::kGpuLane : spin::kLane),
      policy_(*options_.policy),
      turns_(epoll_.get(), policy_),
      profiles_(
          *state_.device, [this] { Wake(); },
          [this] {
            memory::DeviceMemory usage = state_.pool->CurrentUsage();
            state_.shared->AddTo(usage);
            return usage;
          }),
      stalls_(options_.stall_ns, index, registry.events()) {
  state_.is_wanted = [this] { return IsWanted(running_); };
  state_.peers->SetWake([this] { Wake(); });
  state_.pool->residency().SetClasses(
      [this](const Tenant& tenant) { return options_.grant_of(tenant).priority; });
}

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
  const Tenant& tenant = session->peer().tenant;
  const TimeGrant grant = options_.grant_of(tenant);
  ASSIGN_OR_RETURN(auto opened, DeviceSession::Create(session, index_, state_, transport,
                                                      registry_.table_space(), grant.priority));
  if (const auto quota = session->quota(index_)) state_.pool->ledger().SetQuota(opened->account(), quota);
  session->SetOpen(index_, transport);
  profiles_.Add(*opened);
  turns_.Add(std::move(opened), policy_.Add(tenant, grant));
  NiceChanged(*session);
  return absl::OkStatus();
}

void Lane::GrantChanged(const Tenant& tenant) {
  const TimeGrant grant = options_.grant_of(tenant);
  policy_.Change(tenant, grant);
  turns_.ForEach([&](DeviceSession& session) {
    if (session.peer().tenant == tenant) session.SetPriority(grant.priority);
  });
}

void Lane::NiceChanged(const session::Session& session) {
  if (Find(session.id()) != nullptr)
    policy_.SetWeight(turns_.AccountOf(session.id()), WeightOfNice(session.nice()));
}

void Lane::Close(uint64_t id, const std::string& reason, bool fault) {
  DeviceSession* const closed = turns_.Find(id);
  if (closed == nullptr) return;
  closed->transport().Close(reason, ends_ ? transport::kDaemonEnded : transport::kSessionClosed);
  profiles_.Remove(*closed);
  Archive(*closed, reason, fault);
  closed->CountHeld(policy_.Held(turns_.AccountOf(id)));
  std::unique_ptr<DeviceSession> session = turns_.Remove(id);
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

bool Lane::EndSession(DeviceSession& session) {
  if (!session.End()) return false;
  registry_.CountEnded(session.peer().tenant, index_, session.counters());
  return true;
}

bool Lane::RunEnding() {
  return std::erase_if(ending_, [&](const auto& session) { return EndSession(*session); }) != 0;
}

TenantTotals Lane::Tenants() const {
  TenantTotals totals = registry_.EndedWork(index_);
  for (const auto& session : ending_)
    totals.Of(session->peer().tenant).counters[index_] += session->counters();
  turns_.ForEach([&](const DeviceSession& session) {
    TenantTotal& total = totals.Of(session.peer().tenant);
    total.counters[index_] += session.counters();
    total.counters[index_].held += policy_.Held(turns_.AccountOf(session.id()));
    total.memory_bytes += session.allocated_bytes() - session.shared_bytes();
  });
  for (const auto& [tenant, memory] : state_.shared->tenants()) {
    TenantTotal& total = totals.Of(tenant);
    total.memory_bytes += memory.bytes;
    total.shared_bytes += memory.bytes;
  }
  return totals;
}

void Lane::CloseForFault(uint64_t session, const std::string& reason) {
  Close(session, reason, /*fault=*/true);
  options_.on_fault(session, reason);
}

void Lane::NoteExecutors() {
  for (const executor::ExecutorRole role : executor::kExecutorRoles) {
    const executor::ExecutorStatus now = state_.device->executor(role);
    executor::ExecutorStatus& known = executors_[static_cast<size_t>(role)];
    if (now.lost != known.lost) {
      registry_.events().Add({.kind = "executor_lost",
                              .device = index_,
                              .executor_pid = known.pid,
                              .text = state_.device->loss(role)});
    }
    if (now.replaced != known.replaced)
      registry_.events().Add({.kind = "executor_replaced", .device = index_, .executor_pid = now.pid});
    known = now;
  }
}

std::string Lane::OthersAtWork(const DeviceSession& session) const {
  constexpr int kNamed = 3;
  std::string text;
  int others = 0;
  for (const Turns::Turn& turn : turns_.awake()) {
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
  turns_.ForEach([&](const DeviceSession& session) {
    stalls_.Look(session.peer(), session.id(), session.wait_state(), now,
                 [&] { return OthersAtWork(session); });
  });
  stalls_.Looked(now);
}

void Lane::PollDevice() {
  WatchStalls();
  if (state_.shared->due_ns() != UINT64_MAX) state_.shared->Expire(NowNs());
  state_.pool->residency().Poll(NowNs());
  state_.peers->Poll();
  for (const executor::Verdict& verdict : state_.device->Poll()) {
    if (verdict.owner == executor::kDaemon) {
      if (state_.merger != nullptr) state_.merger->Abandon(absl::UnavailableError(verdict.reason));
      continue;
    }
    for (const auto& session : ending_) {
      if (session->id() == verdict.owner) session->Abandon();
    }
    if (DeviceSession* session = Find(verdict.owner)) session->Abandon();
    CloseForFault(verdict.owner, verdict.reason);
  }
  profiles_.Poll();
  if (profiles_.samples_memory()) SampleMemory(NowNs());
  NoteExecutors();
  PollMerger();
}

// Where its work is the lane's own, it waits until nobody has any.
void Lane::PollMerger() {
  if (state_.merger == nullptr) return;
  state_.merger->Poll(NowNs(), state_.last_content,
                      [&] { return !properties_.synchronous || !IsWanted(nullptr); });
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

bool Lane::IsWanted(const Turns::Turn* running) const {
  pollfd rung = {epoll_.get(), POLLIN, 0};
  return poll(&rung, 1, 0) != 0 || std::ranges::any_of(turns_.awake(), [&](const Turns::Turn& turn) {
           return &turn != running && (turn.session->under_way() || turn.session->HasCommands());
         });
}

absl::Status Lane::HoldBack(Turns::Turn& turn, bool waits, uint64_t now_ns) {
  ASSIGN_OR_RETURN(const bool has_commands, turn.session->HoldBack(now_ns, waits));
  if (has_commands)
    policy_.HeldBack(*turn.account);
  else
    policy_.WasIdle(*turn.account);
  turn.waits = has_commands && waits;
  held_back_ |= has_commands && !waits;
  Turns::Took(turn, has_commands || turn.session->under_way(), now_ns);
  return absl::OkStatus();
}

absl::StatusOr<bool> Lane::RunTurn(Turns::Turn& turn, uint64_t now_ns) {
  DeviceSession& session = *turn.session;
  const uint64_t before = session.counters().busy_ns;
  session.Poll();
  const scheduler::Policy::Decision decision = policy_.Decide(*turn.account);
  switch (decision.answer) {
    case scheduler::Policy::Answer::kHoldBack:
    case scheduler::Policy::Answer::kWait:
      RETURN_IF_ERROR(HoldBack(turn, decision.answer == scheduler::Policy::Answer::kWait, now_ns));
      return session.counters().busy_ns != before;
    case scheduler::Policy::Answer::kAwaitAnother:
      return true;
    case scheduler::Policy::Answer::kRun:
      break;
  }
  turn.waits = false;
  running_ = &turn;
  ASSIGN_OR_RETURN(const auto progress, session.Run(decision.slice_ns, decision.window));
  const bool worked = progress == DeviceSession::Progress::kWorked;
  if (worked)
    policy_.Ran(*turn.account, session.work(), session.slice_began_ns(), session.slice_ended_ns(),
                session.helped_ns());
  else if (session.is_full())
    policy_.IsFull(*turn.account);
  else
    policy_.WasIdle(*turn.account);
  turn.ran = worked;
  Turns::Took(turn, worked || session.under_way(), now_ns);
  return worked || session.counters().busy_ns != before;
}

bool Lane::RunSessions() {
  held_back_ = false;
  if (turns_.empty()) return false;
  const uint64_t now = NowNs();
  turns_.WakeRung(now);
  for (const Turns::Turn& turn : turns_.awake()) policy_.Update(*turn.account, turn.session->work());
  policy_.BeginRound(now);
  bool worked = false;
  auto next = turns_.awake().begin();
  for (size_t left = turns_.awake().size(); left > 0; --left) {
    const auto turn = next++;
    const auto ran = RunTurn(*turn, now);
    if (!ran.ok()) {
      CloseForFault(turn->session->id(), std::string(ran.status().message()));
      continue;
    }
    worked |= *ran;
    if (!properties_.synchronous) turns_.GoesLast(turn);
  }
  turns_.RestIdle(now);
  return worked;
}

Lane::Pending Lane::FindPending() const {
  if (held_back_ || !ending_.empty() || profiles_.is_settling() || MergerWorks()) return Pending::kDevice;
  Pending pending = Pending::kNothing;
  for (const Turns::Turn& turn : turns_.awake()) {
    if (!turn.session->under_way()) continue;
    if (!turn.session->awaits_peer_only()) return Pending::kDevice;
    pending = Pending::kPeer;
  }
  return pending;
}

uint64_t Lane::MostSleepNs(Pending pending, uint64_t peer_pause_ns) const {
  uint64_t most = UINT64_MAX;
  if (pending == Pending::kPeer) {
    most = peer_pause_ns;
  } else if (stalls_.watches() && std::ranges::any_of(turns_.awake(), [](const Turns::Turn& turn) {
               return turn.session->wait_state().since_ns != 0;
             })) {
    most = std::max(stalls_.period_ns(), uint64_t{100'000'000});
  }
  const uint64_t now = NowNs();
  uint64_t due = std::min({policy_.DueNs(), state_.shared->due_ns(), state_.pool->residency().due_ns()});
  if (state_.merger != nullptr) due = std::min(due, state_.merger->due_ns(now));
  if (due != UINT64_MAX) most = std::min(most, due - std::min(due, now));
  return most;
}

bool Lane::Sleep(const timespec* timeout) {
  bool arrived = turns_.PrepareSleep() || has_tasks_.load(std::memory_order_acquire);
  if (!arrived) {
    pollfd readable = {epoll_.get(), POLLIN, 0};
    arrived = ppoll(&readable, 1, timeout, nullptr) != 0;
  }
  eventfd_t count;
  eventfd_read(inbox_.get(), &count);
  turns_.EndSleep(NowNs());
  return arrived;
}

void Lane::Main() {
  auto last_work = Clock::now();
  int idle_polls = 0;
  uint64_t peer_pause_ns = kMinPeerPauseNs;
  unsigned round = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    bool worked = RunTasks();
    if (++round % kRoundsPerPoll == 0) PollDevice();
    if (MergerWorks()) PollMerger();
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
    const uint64_t most = MostSleepNs(pending, peer_pause_ns);
    const timespec pause = {static_cast<time_t>(most / 1'000'000'000),
                            static_cast<long>(most % 1'000'000'000)};
    const uint64_t asleep_ns = profiles_.samples_memory() ? NowNs() : 0;
    const bool arrived = Sleep(most == UINT64_MAX ? nullptr : &pause);
    if (asleep_ns != 0) SampleMemory(asleep_ns);
    PollDevice();
    if (arrived) idle_polls = 0;
    peer_pause_ns = std::min(2 * peer_pause_ns, kMaxPeerPauseNs);
  }
  ends_ = true;
  std::vector<uint64_t> open;
  turns_.ForEach([&](const DeviceSession& session) { open.push_back(session.id()); });
  for (const uint64_t session : open) Close(session, "the xpud daemon is ending");
  if (state_.merger != nullptr) state_.merger->End();
  const auto until = Clock::now() + kMaxWaitAtEnd;
  while ((!ending_.empty() || MergerWorks()) && Clock::now() < until) {
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
