#include "tests/inject/injected_daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

namespace xpud::inject {
namespace {

Plan* MakePlan(const std::string& path, const Failure& failure) {
  Plan& plan = CreatePlan(path);
  plan.fails = failure.call;
  plan.result = static_cast<uint32_t>(failure.result);
  plan.sticks = failure.sticks ? 1 : 0;
  return &plan;
}

std::filesystem::path Beside(const std::string& name) {
  return std::filesystem::path(e2e::DaemonBinary()).replace_filename(name);
}

}  // namespace

InjectedDaemon::InjectedDaemon(const std::string& folder, const std::vector<std::string>& flags,
                               const Failure& failure)
    : folder_(folder), socket_(folder + "/xpud.sock"), plan_(MakePlan(folder + "/plan", failure)) {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) std::abort();
  pid_ = fork();
  if (pid_ == 0) Become(flags, ready[1]);
  close(ready[1]);
  char byte;
  serves_ = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
}

void InjectedDaemon::Become(const std::vector<std::string>& flags, int ready) const {
  const int log = open((folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(log, STDERR_FILENO);
  dup2(ready, 3);
  setenv(kPlanVariable, (folder_ + "/plan").c_str(), 1);
  const std::string driver = Beside("../lib/libze_inject.so").lexically_normal();
  // The plan is a file, which a confined driver could not open.
  std::vector<std::string> arguments = {
      e2e::DaemonBinary(), "--socket", socket_,       "--ready-fd",       "3",        "--driver", driver,
      "--confine",         "off",      "--cache-dir", folder_ + "/cache", "--device", "cpu"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(99);
}

InjectedDaemon::~InjectedDaemon() {
  End();
  munmap(plan_, sizeof(Plan));
}

std::string InjectedDaemon::Log() const {
  std::ifstream file(folder_ + "/log");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int InjectedDaemon::End() {
  if (pid_ < 0) return 0;
  const pid_t pid = std::exchange(pid_, -1);
  if (serves_) e2e::SignalProcess(pid, SIGTERM);
  int status = 0;
  if (!e2e::Within(std::chrono::seconds(20), [&] { return waitpid(pid, &status, WNOHANG) == pid; })) {
    e2e::SignalProcess(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return 2000;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace xpud::inject
