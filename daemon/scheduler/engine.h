// The daemon's one thread that decides: it takes commands from all sessions, in slices that FairShare allots,
// and has them executed. It owns the sessions and the devices' state, so none of that needs a lock. Other
// threads reach it with Post and Call.
//
// Awake, it polls the rings; with nothing to do for a while it sleeps until a client rings its doorbell.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/scheduler/device_share.h"
#include "daemon/scheduler/event_log.h"
#include "daemon/scheduler/fair_share.h"
#include "daemon/scheduler/tenant_totals.h"
#include "daemon/session/session.h"
#include "proto/base/mutex.h"
#include "proto/base/spin.h"
#include "proto/base/unique_fd.h"

namespace xpud::scheduler {

class Engine {
 public:
  struct Options {
    uint64_t slice_ns = 100'000;  // what a session may run before the next one's turn
    // Called on the engine's thread when a session was closed that its client has not left (its socket must
    // be shut).
    std::function<void(uint64_t session)> on_breach;
  };
  struct Counters {
    uint64_t sessions_opened = 0;
    uint64_t sessions_closed_for_fault = 0;
  };

  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::vector<session::DeviceState> devices,
                                                        Options options);
  ~Engine();  // ends the thread and closes every session
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread, also a compiler's: runs `task` on the engine's thread soon.
  void Post(std::function<void()> task);
  // Not the engine's thread: runs `task` there and waits for it.
  void Call(absl::FunctionRef<void()> task);
  // Any thread: the engine looks at stalled sessions again.
  void Wake();
  // Any thread.
  EventLog& events() { return events_; }

  // The engine's thread only.
  void AddSession(std::unique_ptr<session::Session> session);
  void CloseSession(uint64_t id, const std::string& reason);
  // Closes a session for what it did.
  void CloseForFault(uint64_t id, const std::string& reason);
  // Closes a session whose client has not left, for no fault of its own.
  void Evict(uint64_t id, const std::string& reason);
  // Drained: there is no place for new sessions; those that are there go on.
  void SetDrained(bool drained);
  bool drained() const { return drained_; }
  // OK, or why there is no place.
  absl::Status Admits() const;
  absl::flat_hash_map<uint64_t, std::unique_ptr<session::Session>>& sessions() { return sessions_; }
  std::vector<session::DeviceState>& devices() { return devices_; }
  const Counters& counters() const { return counters_; }
  TenantTotals::Map Tenants() const;

 private:
  struct Turn {
    session::Session* session;
    struct Shares {
      FairShare::Account* appending;
      DeviceShare::Account* device;
    };
    std::vector<Shares> shares;  // by device
  };

  struct Alarm {
    int fd = -1;
    uint64_t replaced = 0;
    bool operator==(const Alarm&) const = default;
  };

  Engine(std::vector<session::DeviceState> devices, Options options);
  void Main();
  bool RunTasks();
  // Looks after devices, and closes the sessions that took one down.
  void PollDevices();
  void NoteExecutor(uint32_t device);
  void NoteSession(const char* kind, const session::Session& session, std::string text);
  bool RunEnding();
  // True: the session has ended, and is counted.
  bool EndSession(session::Session& session);
  bool RunSessions();
  void BeginRound();
  absl::StatusOr<bool> RunTurn(const Turn& turn);
  bool AnyUnderWay() const;
  void Sleep();
  void DrainInbox();

  const Options options_;
  UniqueFd inbox_;  // eventfd: a task was posted, or Wake
  UniqueFd epoll_;

  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_tasks_{false};
  std::atomic<bool> stopping_{false};

  // The engine's thread only.
  std::vector<session::DeviceState> devices_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<session::Session>> sessions_;
  const SpinTime spin_;  // before an idle engine sleeps
  struct Shares {
    FairShare appending;
    DeviceShare device;
  };
  std::vector<Shares> shares_;  // by device
  std::vector<Turn> turns_;
  bool held_back_ = false;                                 // a session in this round, for another's sake
  std::vector<std::unique_ptr<session::Session>> ending_;  // closed, and a device still works for them
  std::vector<Alarm> alarms_;                              // of devices, as epoll_ knows them
  std::vector<executor::ExecutorStatus> executors_;        // as events_ knows them
  bool drained_ = false;
  EventLog events_;
  Counters counters_;
  TenantTotals tenants_;

  std::thread thread_;  // last: ends first
};

}  // namespace xpud::scheduler
