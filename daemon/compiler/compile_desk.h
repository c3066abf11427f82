// Has clients' kernels compiled by the compile process: in the order of CompileTurns, some at a time. A
// thread of its own talks to the process. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/compiler/compile_process.h"
#include "daemon/compiler/compile_turns.h"
#include "kernels/compiler/compile_service.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::compiler {

class CompileDesk final : public kernels::CompileService {
 public:
  // Compilations at a time, of all clients: one less than there are processors, at most.
  static constexpr size_t kMaxAtOnce = 4;

  // Returns ResourceExhausted if the system has no thread left. `process` outlives the desk.
  static absl::StatusOr<std::unique_ptr<CompileDesk>> Start(CompileProcess& process);
  ~CompileDesk() override { Stop(); }
  CompileDesk(const CompileDesk&) = delete;
  CompileDesk& operator=(const CompileDesk&) = delete;

  uint64_t Compile(Job job) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Join(uint64_t job, const Waiter& waiter) override ABSL_LOCKS_EXCLUDED(mutex_);
  // Compiles nothing more, and calls no `done`.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  struct State {
    CompileProcess::State process;
    size_t running = 0, overdue = 0, waiting = 0;       // kernels, now
    uint64_t compiled = 0, failed = 0, compile_ns = 0;  // in all
  };
  State state() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  CompileDesk(CompileProcess& process, UniqueFd wakes);
  void Serve();
  void DropAbandoned();
  void StartWhatMay();
  // Waits for answers, or until another job may start.
  void Wait();
  void Finish(uint64_t job, const Done& done, absl::StatusOr<std::string> code);
  void Wake();

  CompileProcess& process_;
  const UniqueFd wakes_;  // an eventfd

  mutable Mutex mutex_;
  CompileTurns turns_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Job> jobs_ ABSL_GUARDED_BY(mutex_);  // that wait for their turn
  uint64_t last_job_ ABSL_GUARDED_BY(mutex_) = 0;
  State counts_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The thread's own.
  struct Running {
    Compilation compilation;
    Done done;
  };
  std::map<uint64_t, Running> running_;

  std::thread thread_;  // last: it ends before the rest
};

}  // namespace xpud::compiler
