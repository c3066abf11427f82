// A device's thread in the daemon: takes commands from all sessions on the device, in slices that the
// scheduling policy allots, and has them executed. It owns the device's state and its sessions, so these need
// no lock. Other threads reach it with Post and Call. Lanes share nothing while commands run, so that one
// device never holds up another one's sessions.
//
// Awake, it polls the rings; with nothing to do for a while, it sleeps until a client signals its doorbell.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/lane/profile_desk.h"
#include "daemon/lane/reader_budget.h"
#include "daemon/lane/stall_watch.h"
#include "daemon/lane/turns.h"
#include "daemon/records/archive.h"
#include "daemon/scheduler/policy.h"
#include "daemon/session/device_session.h"
#include "daemon/session/registry.h"
#include "daemon/stream/device_state.h"
#include "daemon/tenant/tenant.h"
#include "daemon/tenant/time_grant.h"
#include "daemon/tenant/totals.h"
#include "proto/base/mutex.h"
#include "proto/base/spin.h"
#include "proto/base/unique_fd.h"

namespace xpud::lane {

class Lane {
 public:
  struct Options {
    std::unique_ptr<scheduler::Policy> policy;  // which session runs next; not null
    uint64_t stall_ns = 0;  // a session without progress for this time is an event; 0: it is not
    // What a tenant is granted of the device's time: read when a session opens the device, and by
    // GrantChanged. Thread-safe.
    std::function<TimeGrant(const Tenant&)> grant_of = [](const Tenant&) { return TimeGrant{}; };
    // Called on the lane's thread when a session must be closed because of what its client did. The lane has
    // closed its part.
    std::function<void(uint64_t session, const std::string& reason)> on_fault = [](uint64_t,
                                                                                   const std::string&) {};
    // Called on the lane's thread when a session has ended on the device by a fault, or with unfinished work.
    std::function<void(uint32_t device, const records::EndedSession& session)> on_crash =
        [](uint32_t, const records::EndedSession&) {};
  };

  // `index`: the device's number. `registry` must outlive the lane.
  static absl::StatusOr<std::unique_ptr<Lane>> Create(stream::DeviceState state, uint32_t index,
                                                      session::Registry& registry, Options options);
  ~Lane() { Stop(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Closes every session and ends the thread. Tasks that are posted later do not run.
  void Stop();

  uint32_t index() const { return index_; }
  // Constant; thread-safe.
  const executor::DeviceProperties& properties() const { return properties_; }
  // Runs `task` on the lane's thread soon. Thread-safe.
  void Post(std::function<void()> task);
  // Runs `task` on the lane's thread and waits for it. REQUIRES: not that thread.
  void Call(absl::FunctionRef<void()> task);
  // Like Call, for readers, one at a time: waits until ReaderBudget allows it. `task` takes at most some tens
  // of microseconds: it copies what is formatted elsewhere, and returns for more.
  void Visit(absl::FunctionRef<void()> task);
  // The lane looks at stalled sessions again. Thread-safe.
  void Wake();

  // REQUIRES for all that follows: the lane's thread.
  // Opens the device for a session. Returns Unavailable if the session was closed, and AlreadyExists if it
  // uses the device.
  absl::Status Open(const std::shared_ptr<session::Session>& session,
                    const std::shared_ptr<transport::ServerTransport>& transport);
  // Closes a session's part on this device, if there is one. `fault`: because of what it did.
  void Close(uint64_t session, const std::string& reason, bool fault = false);
  // What `grant_of` says of the tenant has changed. Queues that its sessions have keep their priority on the
  // device; the lane's order is another one at once.
  void GrantChanged(const Tenant& tenant);
  // The session's nice has changed.
  void NiceChanged(const session::Session& session);
  session::DeviceSession* Find(uint64_t session) const { return turns_.Find(session); }
  // Calls `visit` for each session, by id.
  void ForEach(absl::FunctionRef<void(const session::DeviceSession&)> visit) const { turns_.ForEach(visit); }
  // How many sessions have turns; the others sleep.
  size_t awake_sessions() const { return turns_.awake().size(); }
  stream::DeviceState& state() { return state_; }
  // The memory and counters of each tenant, ended sessions included.
  TenantTotals Tenants() const;
  // What is recorded of sessions that ended lately.
  const records::Archive& ended() const { return ended_; }
  ProfileDesk& profiles() { return profiles_; }
  StallWatch& stalls() { return stalls_; }
  const StallWatch& stalls() const { return stalls_; }

 private:
  Lane(stream::DeviceState state, uint32_t index, session::Registry& registry, Options options,
       UniqueFd epoll, UniqueFd inbox);
  void Main();
  bool RunTasks();
  // Checks the device, and closes the sessions that took it down.
  void PollDevice();
  void NoteExecutors();
  // For profiles. The memory has been as it is since `since_ns`.
  void SampleMemory(uint64_t since_ns) { profiles_.SampleMemory(since_ns, !ending_.empty()); }
  // Looks for buffers with equal contents.
  void PollMerger();
  bool MergerWorks() const { return state_.merger != nullptr && state_.merger->is_under_way(); }
  void CloseForFault(uint64_t session, const std::string& reason);
  // Keeps what is recorded of a session that ends.
  void Archive(session::DeviceSession& session, const std::string& reason, bool fault);
  // Ends sessions that were closed. Returns whether one has ended.
  bool RunEnding();
  // Returns whether the session has ended; then it is counted.
  bool EndSession(session::DeviceSession& session);
  void WatchStalls();
  // Names the other sessions that have work: "session 7 (train.py, uid:1000)".
  std::string OthersAtWork(const session::DeviceSession& session) const;
  // Whether a task, an alarm, or another session's work waits while a session runs; nullptr: none does.
  bool IsWanted(const Turns::Turn* running) const;
  // Runs a slice of each session whose turn it is. Returns whether any command ran.
  bool RunSessions();
  // The session must not run now: `waits`, its tenant, whoever else does.
  absl::Status HoldBack(Turns::Turn& turn, bool waits, uint64_t now_ns);
  // Returns whether the session or the device worked, or will after another session.
  absl::StatusOr<bool> RunTurn(Turns::Turn& turn, uint64_t now_ns);
  // What may happen without waking the lane.
  enum class Pending {
    kNothing,
    kPeer,    // sessions wait for other lanes
    kDevice,  // the device works or will take commands, or a session was held back
  };
  Pending FindPending() const;
  // Sleeps until a task, a command or an alarm arrives. Returns false if `timeout` (null: none) passed first.
  bool Sleep(const timespec* timeout);
  // How long the lane may sleep with this pending, at most `peer_pause_ns` if sessions wait for other lanes;
  // UINT64_MAX: until something arrives.
  uint64_t MostSleepNs(Pending pending, uint64_t peer_pause_ns) const;

  const Options options_;
  const uint32_t index_;
  session::Registry& registry_;
  UniqueFd inbox_;  // eventfd: a task was posted, or Wake
  UniqueFd epoll_;

  Mutex visits_mutex_;
  ReaderBudget reader_budget_ ABSL_GUARDED_BY(visits_mutex_);

  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_tasks_{false};
  std::atomic<bool> stopping_{false};

  // The lane's thread only.
  stream::DeviceState state_;
  const executor::DeviceProperties properties_;
  const SpinTime spin_;  // before an idle lane sleeps
  scheduler::Policy& policy_;
  Turns turns_;
  bool ends_ = false;                     // the daemon ends, and with it the sessions that are still open
  const Turns::Turn* running_ = nullptr;  // the last one that ran
  bool held_back_ = false;                // a session with commands in this round, in favour of another one
  // Closed, and the device still works for them.
  std::vector<std::unique_ptr<session::DeviceSession>> ending_;
  executor::ExecutorStatus executors_[std::size(executor::kExecutorRoles)];  // as the event log knows them
  records::Archive ended_;
  ProfileDesk profiles_;
  StallWatch stalls_;

  std::thread thread_;  // last member: ends first
};

}  // namespace xpud::lane
