// Compiles the kernels that clients define, in a process without devices and clients' data. LLVM is not
// trusted with them: each one is compiled in a fork of its own, which ends with it. A crash or a hang fails
// that kernel alone.
//
// Two processes are forked early. `xpud-compile0` makes the forks; it reads nothing that a client sent. Its
// parent does nothing but start it again if it was killed. Requests wait in their socket meanwhile.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/compiler/code_target.h"
#include "kernels/loops/compile_request.h"
#include "proto/base/unique_fd.h"

namespace xpud::compiler {

// How much time of a processor the compilation of a kernel may take, and the memory that it may use.
inline constexpr int kMaxCompileSeconds = 10;
inline constexpr uint64_t kMaxCompileBytes = uint64_t{1} << 30;

// A compilation under way in a fork, which ends with this. Waits for nothing: poll fd() for events(). One
// thread.
class Compilation {
 public:
  // `sends`: the request, as the fork reads it.
  Compilation(UniqueFd socket, std::string sends, uint64_t now_ns);

  int fd() const { return socket_.get(); }
  short events() const;
  uint64_t deadline_ns() const;
  // Goes on after an event or the deadline. Returns the code, or why there is none: the compiler's error;
  // DeadlineExceeded if it took too long; Aborted if the fork crashed or was killed.
  std::optional<absl::StatusOr<std::string>> Continue(uint64_t now_ns);

 private:
  // Returns whether the fork may send more.
  bool Receive();
  absl::StatusOr<std::string> Answer(uint64_t now_ns);

  UniqueFd socket_;
  const uint64_t began_ns_;
  std::string sends_, received_;
  size_t sent_ = 0;
};

class CompileProcess {
 public:
  // kernels::CompileRequested, or another function for tests.
  using Compiler = absl::StatusOr<std::string> (*)(const kernels::CodeTarget& target,
                                                   std::string_view request);
  // REQUIRES: the process has one thread. `confine` is called in the new process before it serves.
  static absl::StatusOr<std::unique_ptr<CompileProcess>> Start(const std::function<void()>& confine,
                                                               Compiler compile = kernels::CompileRequested);
  ~CompileProcess();  // ends the processes; forks end with their Compilation
  CompileProcess(const CompileProcess&) = delete;
  CompileProcess& operator=(const CompileProcess&) = delete;

  // Starts to compile a request of kernels/loops/compile_request.h. Returns Aborted if the processes are
  // gone. Any thread.
  absl::StatusOr<Compilation> Begin(const kernels::CodeTarget& target, const std::string& request);

  struct State {
    pid_t pid = 0;          // of the process that makes forks; 0: it is being replaced, or gone
    uint64_t replaced = 0;  // how often it was
  };
  State state() const;  // Any thread.

 private:
  struct Shared;
  struct Unmap {
    void operator()(Shared* page) const;
  };
  using SharedPage = std::unique_ptr<Shared, Unmap>;

  CompileProcess(pid_t pid, UniqueFd socket, SharedPage shared)
      : pid_(pid), socket_(std::move(socket)), shared_(std::move(shared)) {}
  // The main loop of the parent of `xpud-compile0`.
  [[noreturn]] static void Supervise(SharedPage shared, Compiler compile);

  const pid_t pid_;
  const UniqueFd socket_;
  const SharedPage shared_;  // written by the parent
};

}  // namespace xpud::compiler
