// The order in which clients' kernels are compiled. The next turn goes to the waiting tenant for which
// compilations have taken least, so that one who defines kernels without end delays another's by about one
// compilation. A tenant that comes back has no more than the others that wait: nothing is saved up. Of a
// tenant's jobs, those that sessions wait for come before those that are compiled ahead of calls.
//
// A compilation that takes longer than `patience_ns` is overdue. Others do not wait for it any more; the next
// one of its session does, and those of its tenant if several of that one are overdue, or if many are in all,
// so that a few tenants do not take the places of the others. A value; times are of a monotonic clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "kernels/compiler/compile_service.h"

namespace xpud::compiler {

inline constexpr uint64_t kCompilePatienceNs = 200'000'000;

class CompileTurns {
 public:
  struct Limits {
    size_t at_once = 1;            // that are not overdue
    size_t overdue = 16;           // in addition; while there are so many, nothing starts
    size_t overdue_of_tenant = 4;  // while there are so many, nothing of the tenant starts
    size_t overdue_many = 8;       // while there are so many in all, nothing of a tenant starts that has one
    uint64_t patience_ns = kCompilePatienceNs;
  };
  using Waiter = kernels::CompileService::Waiter;
  // Tenants that do not compile, and have had more than those that do, are remembered.
  static constexpr size_t kMaxTenants = 1024;

  explicit CompileTurns(const Limits& limits) : limits_(limits) {}

  // `job`: a number above those of earlier jobs. It waits for its turn.
  void Add(uint64_t job, std::vector<Waiter> waiters) { waiting_.emplace(job, std::move(waiters)); }
  // The job may also start in this one's turn. Does nothing if it is done.
  void Join(uint64_t job, const Waiter& waiter);
  // Removes the waiting jobs that had waiters, all of which have ended.
  std::vector<uint64_t> TakeAbandoned();
  // Returns overdue jobs for which that is so, and which the caller ends.
  std::vector<uint64_t> AbandonedWhileRunning(uint64_t now_ns) const;
  // Starts and returns the job whose turn it is, or returns nullopt if none may start.
  std::optional<uint64_t> Start(uint64_t now_ns);
  // A job that has started is done, and its tenant and waiter are charged. Returns how long it took.
  uint64_t End(uint64_t job, uint64_t now_ns);

  // When a job becomes overdue next; UINT64_MAX: none.
  uint64_t DueNs(uint64_t now_ns) const;
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }
  size_t Overdue(uint64_t now_ns) const;

 private:
  struct Running {
    Waiter waiter;  // in whose turn it is
    uint64_t began_ns = 0;
    std::vector<Waiter> waiters;
  };

  bool IsOverdue(const Running& one, uint64_t now_ns) const {
    return now_ns - one.began_ns >= limits_.patience_ns;
  }
  bool MayStart(const Waiter& waiter, size_t overdue, uint64_t now_ns) const;
  uint64_t UsedNs(uint64_t tenant, uint64_t now_ns) const;
  void ForgetTenants();

  const Limits limits_;
  std::map<uint64_t, std::vector<Waiter>> waiting_;  // by job, and so in the order of arrival
  std::map<uint64_t, Running> running_;              // by job
  // How long compilations have taken for each tenant, in addition to what the others were given meanwhile.
  // Those that are not in it have had floor_ns_, the most that one had when its turn came.
  std::map<uint64_t, uint64_t> used_ns_;
  uint64_t floor_ns_ = 0;
};

}  // namespace xpud::compiler
