// Compiles the kernels that clients define, in a process without devices and clients' data. LLVM is not
// trusted with them: each one is compiled in a fork of its own, which ends with it. A crash or a hang fails
// that kernel alone.
//
// The process is forked early, and reads nothing that a client sent: its forks do.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/compiler/code_target.h"
#include "proto/base/unique_fd.h"

namespace xpud::compiler {

// How long the compilation of a kernel may take, and the memory that it may use.
inline constexpr int kMaxCompileSeconds = 10;
inline constexpr uint64_t kMaxCompileBytes = uint64_t{3} << 30;

class CompileProcess {
 public:
  // REQUIRES: the process has one thread. `confine` is called in the new process before it serves.
  static absl::StatusOr<std::unique_ptr<CompileProcess>> Start(const std::function<void()>& confine);
  ~CompileProcess();  // ends the process. REQUIRES: nobody waits in Compile
  CompileProcess(const CompileProcess&) = delete;
  CompileProcess& operator=(const CompileProcess&) = delete;

  // Compiles a request of kernels/loops/compile_request.h. Returns its error; Internal if the compilation
  // crashed, or the process is gone; DeadlineExceeded if it took too long. Any thread.
  absl::StatusOr<std::string> Compile(const kernels::CodeTarget& target, const std::string& request);
  // Pending and later calls of Compile fail. Any thread.
  void Close();

 private:
  CompileProcess(pid_t pid, UniqueFd socket, UniqueFd closed)
      : pid_(pid), socket_(std::move(socket)), closed_(std::move(closed)) {}
  absl::StatusOr<std::string> AwaitAnswer(int socket) const;

  const pid_t pid_;
  const UniqueFd socket_;
  const UniqueFd closed_;  // an eventfd
};

}  // namespace xpud::compiler
