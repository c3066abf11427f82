#include "tests/e2e/gateway_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/e2e/daemon_process.h"

extern char** environ;

namespace xpud::e2e {

GatewayProcess::GatewayProcess(const std::string& directory, const std::string& daemon_socket,
                               const std::vector<std::string>& arguments)
    : directory_(directory), token_file_(directory + "/token") {
  std::ofstream(token_file_) << "a-token-of-" << directory.substr(directory.rfind('/') + 1) << "\n";
  chmod(token_file_.c_str(), 0600);
  setenv("XPUD_TOKEN_FILE", token_file_.c_str(), 1);
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) std::abort();
  std::vector<std::string> words = {
      std::filesystem::path(DaemonBinary()).replace_filename("xpud-gateway").string(),
      "--listen",
      "127.0.0.1:0",
      "--socket",
      daemon_socket,
      "--ready-fd",
      "3",
      "--token-file",
      token_file_};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, (directory_ + "/gateway.log").c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, ready[1], 3);
  if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  close(ready[1]);
  char port[16] = {};
  if (read(ready[0], port, sizeof(port) - 1) <= 1) {
    std::fprintf(stderr, "the gateway did not start:\n%s", Log().c_str());
    std::abort();
  }
  close(ready[0]);
  address_ = "127.0.0.1:" + std::to_string(std::strtol(port, nullptr, 10));
}

void GatewayProcess::Kill(int signal) {
  if (pid_ < 0) return;
  SignalProcess(pid_, signal);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string GatewayProcess::Log() const {
  std::ifstream file(directory_ + "/gateway.log");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace xpud::e2e
