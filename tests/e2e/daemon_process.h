// A real daemon in a directory of its own, for tests. Killed with the object.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/gateway_process.h"
#include "tests/e2e/signal_process.h"
#include "xpud/xpud.h"

namespace xpud::e2e {

// Returns the first number named `field` in a daemon's GetStatusResponse, or -1 if there is none or no
// answer.
int64_t StatusOf(const std::string& socket, const std::string& field);

// Where a daemon keeps compiled kernels: in $XPUD_TEST_CACHE, if that is set, or in its own directory.
enum class KernelFiles { kShared, kOwn };

class DaemonProcess {
 public:
  // Waits until clients can connect; aborts the test program with the daemon's log if it does not start.
  explicit DaemonProcess(const std::vector<std::string>& arguments = {},
                         KernelFiles kernels = KernelFiles::kShared);
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  const std::string& socket() const { return socket_; }
  const std::string& directory() const { return directory_; }
  int pid() const { return pid_; }
  // The address for clients: the socket or, if $XPUD_TEST_REMOTE is set, a gateway's HOST:PORT.
  const std::string& address() const { return gateway_ != nullptr ? gateway_->address() : socket_; }
  std::unique_ptr<Session> Connect(const std::string& name = "test") const;
  void Kill(int signal = SIGKILL);
  // Starts the daemon again with the same arguments, after Kill.
  void Restart() { Start(); }
  std::string Log() const;
  // Runs xpuctl, and returns its exit status. Not in sanitizer builds, which have no xpuctl.
  int Ask(const std::string& arguments, std::string& answer) const;
  int64_t StatusOf(const std::string& field) const { return e2e::StatusOf(socket_, field); }
  // Returns the executor's pid. While the executor is being replaced, waits for the next, up to 20 s; then
  // returns -1.
  int64_t AwaitExecutor() const;
  size_t OpenFileCount() const;

 private:
  void Start();

  std::vector<std::string> extra_;
  std::string directory_, socket_, cache_;
  int pid_ = -1;
  std::unique_ptr<GatewayProcess> gateway_;
};

// The daemon's binary under test: beside this test's.
std::string DaemonBinary();

// Polls `holds` every few milliseconds. Returns whether it became true within `limit`.
bool Within(std::chrono::milliseconds limit, const std::function<bool()>& holds);

}  // namespace xpud::e2e
