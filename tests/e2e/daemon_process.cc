#include "tests/e2e/daemon_process.h"
#include <thread>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "google/protobuf/util/json_util.h"
#include "sdk/control/client.h"

extern char** environ;

namespace xpud::e2e {

int64_t StatusOf(const std::string& socket, const std::string& field) {
  auto client = control::Client::Connect(socket);
  const auto status = client.ok() ? client->GetStatus() : client.status();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  if (!status.ok() || !google::protobuf::util::MessageToJsonString(*status, &text, options).ok()) return -1;
  const size_t at = text.find("\"" + field + "\"");
  if (at == std::string::npos) return -1;
  return std::strtoll(text.c_str() + text.find_first_of("0123456789", at + field.size() + 2), nullptr, 10);
}

std::string DaemonBinary() { return std::filesystem::canonical("/proc/self/exe").parent_path() / "xpud"; }

DaemonProcess::DaemonProcess(const std::vector<std::string>& arguments, KernelFiles kernels)
    : extra_(arguments) {
  char pattern[] = "/tmp/xpud-e2e-XXXXXX";
  directory_ = mkdtemp(pattern);
  socket_ = directory_ + "/xpud.sock";
  const char* const shared = std::getenv("XPUD_TEST_CACHE");
  cache_ = kernels == KernelFiles::kShared && shared != nullptr ? shared : directory_ + "/cache";
  Start();
  if (std::getenv("XPUD_TEST_REMOTE") != nullptr)
    gateway_ = std::make_unique<GatewayProcess>(directory_, socket_);
}

void DaemonProcess::Start() {
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) std::abort();
  std::vector<std::string> arguments = {
      DaemonBinary(), "--socket",         socket_, "--ready-fd", "3", "--cache-dir",
      cache_,         "--exit-when-idle", "60"};
  const char* const flags = std::getenv("XPUD_TEST_DAEMON_FLAGS");
  std::istringstream words(flags != nullptr ? flags : "--device cpu");
  for (std::string word; words >> word;) arguments.push_back(word);
  arguments.insert(arguments.end(), extra_.begin(), extra_.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, (directory_ + "/log").c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&actions, ready[1], 3);
  if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  close(ready[1]);
  char byte;
  if (read(ready[0], &byte, 1) != 1) {
    std::fprintf(stderr, "the daemon did not start:\n%s", Log().c_str());
    std::abort();
  }
  close(ready[0]);
}

DaemonProcess::~DaemonProcess() {
  Kill();
  std::error_code error;
  std::filesystem::remove_all(directory_, error);
}

void DaemonProcess::Kill(int signal) {
  if (pid_ < 0) return;
  SignalProcess(pid_, signal);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::unique_ptr<Session> DaemonProcess::Connect(const std::string& name) const {
  ConnectOptions options;
  options.address = address();
  options.client_name = name;
  auto session = Session::Connect(options);
  if (!session.ok()) {
    std::fprintf(stderr, "cannot connect: %s\n%s", std::string(session.status().message()).c_str(),
                 Log().c_str());
    std::abort();
  }
  return *std::move(session);
}

std::string DaemonProcess::Log() const {
  std::ifstream file(directory_ + "/log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int DaemonProcess::Ask(const std::string& arguments, std::string& answer) const {
  const std::string command = std::filesystem::path(DaemonBinary()).replace_filename("xpuctl").string() +
                              " --address " + socket_ + " " + arguments + " 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  answer.clear();
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) answer.append(buffer, n);
  return WEXITSTATUS(pclose(pipe));
}

int64_t DaemonProcess::AwaitExecutor() const {
  int64_t pid = -1;
  Within(std::chrono::seconds(20), [&] { return (pid = StatusOf("executor_pid")) > 0; });
  return pid;
}

size_t DaemonProcess::OpenFileCount() const {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd"))
    ++count;
  return count;
}

bool Within(std::chrono::milliseconds limit, const std::function<bool()>& holds) {
  std::chrono::microseconds pause{50};  // most things happen soon
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::microseconds>(pause * 2, std::chrono::milliseconds(2));
  }
  return holds();
}

}  // namespace xpud::e2e
