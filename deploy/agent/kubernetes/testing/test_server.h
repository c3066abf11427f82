// The API server of tests (tests/engines/api_server.py) as a child process. Header only; not thread-safe.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>

#include "deploy/agent/kubernetes/api_server.h"
#include "deploy/agent/kubernetes/json.h"

namespace xpud::agent::kubernetes {

class TestServer {
 public:
  TestServer() {
    char pattern[] = "/tmp/xpud-api-XXXXXX";
    folder_ = mkdtemp(pattern);
    int to_child[2], from_child[2];
    EXPECT_EQ(pipe2(to_child, O_CLOEXEC) | pipe2(from_child, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
    std::string program = "python3", script = XPUD_SOURCE "/tests/engines/api_server.py";
    char* const arguments[] = {program.data(), script.data(), folder_.data(), nullptr};
    EXPECT_EQ(posix_spawnp(&child_, "python3", &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to_child[0]);
    close(from_child[1]);
    in_ = fdopen(to_child[1], "w");
    out_ = fdopen(from_child[0], "r");
    const Json ready = ReadLine();
    options = {.url = std::string(TextMember(ready, "url")),
               .token_file = std::string(TextMember(ready, "token_file")),
               .ca_file = std::string(TextMember(ready, "ca_file"))};
  }
  ~TestServer() {
    fclose(in_);  // which ends it
    fclose(out_);
    waitpid(child_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  // Calls a method of the server's class, and returns its result.
  Json Call(const char* method, const Json& arguments = Json::object()) {
    fprintf(in_, "%s\n", JsonText({{"call", method}, {"arguments", arguments}}).c_str());
    fflush(in_);
    const Json answer = ReadLine();
    EXPECT_TRUE(answer.contains("result")) << method << ": " << JsonText(answer);
    return Member(answer, "result");
  }
  // The server's only slice; null if there is none.
  Json Slice() {
    const Json all = Call("all", {{"resource", "resourceslices"}});
    EXPECT_LE(all.size(), 1U);
    return all.empty() ? Json() : all[0];
  }
  const std::string& folder() const { return folder_; }

  ApiServer::Options options;

 private:
  Json ReadLine() {
    char* line = nullptr;
    size_t size = 0;
    const ssize_t length = getline(&line, &size, out_);
    const std::string text(line, static_cast<size_t>(std::max<ssize_t>(length, 0)));
    free(line);
    EXPECT_GT(length, 0) << "the server has ended";
    return ParseJson(text).value_or(Json());
  }

  std::string folder_;
  pid_t child_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
};

}  // namespace xpud::agent::kubernetes
