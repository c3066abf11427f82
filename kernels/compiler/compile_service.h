// Compiles what Skeleton::RequestOf gives in other processes, because LLVM is not trusted with what clients
// send. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/kernel_owner.h"
#include "kernels/compiler/code_target.h"

namespace xpud::kernels {

class CompileService {
 public:
  // The session that waits for a kernel, or will need it. It may end meanwhile.
  struct Waiter {
    std::weak_ptr<KernelOwner> owner;
    uint64_t tenant = 0;
    bool is_ahead = false;  // KernelOwner::is_ahead
  };
  // The code and how long it took, or why there is none. Aborted: the compilation was ended from outside or
  // crashed; the next request compiles again. Cancelled: all waiters have ended.
  using Done = std::function<void(absl::StatusOr<std::string> code, uint64_t ns)>;
  struct Job {
    CodeTarget target;
    std::string request;
    std::vector<Waiter> waiters;  // none: whoever waits does not end
    Done done;
  };

  virtual ~CompileService() = default;
  // Returns the job's number, not 0. Calls `job.done` at most once, on another thread: not if the service is
  // stopped before.
  virtual uint64_t Compile(Job job) = 0;
  // The job is wanted by another one, too, and may be compiled in that one's turn.
  virtual void Join(uint64_t job, const Waiter& waiter) = 0;
};

}  // namespace xpud::kernels
