// A real daemon whose driver fails at a chosen call.
#pragma once

#include <level_zero/ze_api.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/daemon_process.h"
#include "tests/inject/plan.h"
#include "xpud/xpud.h"

namespace xpud::inject {

struct Failure {
  uint64_t call = 0;  // number of the failing call, from 1; 0: none fails
  ze_result_t result = ZE_RESULT_SUCCESS;
  bool sticks = false;
};

class InjectedDaemon {
 public:
  // Waits until the daemon serves or has ended. Daemons share the kernel cache in `folder`.
  InjectedDaemon(const std::string& folder, const std::vector<std::string>& flags, const Failure& failure);
  ~InjectedDaemon();
  InjectedDaemon(const InjectedDaemon&) = delete;
  InjectedDaemon& operator=(const InjectedDaemon&) = delete;

  bool serves() const { return serves_; }
  int pid() const { return pid_; }
  const std::string& socket() const { return socket_; }
  uint64_t calls() const { return plan_->calls; }
  void Disarm() { plan_->fails = 0; }
  std::string failed_call() const { return plan_->failed_call; }
  std::string Log() const;
  int64_t StatusOf(const std::string& field) const { return e2e::StatusOf(socket_, field); }
  // Asks the daemon to end, if it runs. Returns its exit status, 1000 plus a signal's number, or 2000 if it
  // does not end.
  int End();

 private:
  [[noreturn]] void Become(const std::vector<std::string>& flags, int ready) const;

  const std::string folder_, socket_;
  Plan* plan_ = nullptr;
  pid_t pid_ = -1;
  bool serves_ = false;
};

}  // namespace xpud::inject
