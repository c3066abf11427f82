#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>

#include "daemon/config/configuration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> ProblemsOf(const std::string& text) {
  const File file = ParseFile("x.yaml", text);
  std::vector<std::string> lines;
  for (const Problem& problem : file.problems) lines.push_back(Describe(file, problem));
  return lines;
}

class Folder {
 public:
  Folder() {
    std::string name = "/tmp/xpud-config-XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    unlink(File().c_str());
    rmdir(path_.c_str());
  }
  std::string File() const { return path_ + "/xpud.yaml"; }
  void Write(const std::string& text) const { std::ofstream(File()) << text; }

 private:
  std::string path_;
};

absl::StatusOr<Configuration> Complete(std::vector<std::string> arguments) {
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  const auto line = CommandLine::Parse(raw);
  return line.ok() ? line->Complete() : line.status();
}

// What `xpuctl config check` finds valid, a start takes; what a start refuses, the check refuses.
TEST(ConfigFile, TheCheckOfAFileIsThatOfAStart) {
  const Folder folder;
  const std::string long_path = "/" + std::string(120, 'x');
  for (const std::string& wrong :
       {std::string("metrics-listen: 99999"), std::string("metrics-listen: '::1:9464'"),
        std::string("metrics-listen: localhost.localdomain:9464"), std::string("metrics-listen: 127.0.0.1"),
        std::string("metrics-listen: unix:metrics.sock"), "metrics-listen: unix:" + long_path,
        std::string("metrics-listen: unix:/tmp/metrics.sock"),
        std::string("socket: /tmp/a/xpud.sock\nmetrics-listen: unix:/tmp/metrics.sock"),
        "socket: " + long_path, std::string("driver: /nonexistent/libze_xpud.so")}) {
    folder.Write(wrong + "\n");
    const File file = *ReadFile(folder.File());
    const std::vector<Problem> problems = config::ProblemsOf(file);
    ASSERT_EQ(problems.size(), 1u) << wrong;
    EXPECT_EQ(problems[0].line, std::count(wrong.begin(), wrong.end(), '\n') + 1) << wrong;
    const absl::Status refused = Complete({"--config", folder.File()}).status();
    EXPECT_EQ(refused.message(), Describe(file, problems[0]));
  }
  for (const char* const right :
       {"metrics-listen: 9464", "metrics-listen: '[::1]:9464'", "metrics-listen: localhost:0",
        "metrics-listen: unix:/run/xpud/metrics.sock"}) {
    folder.Write(right);
    EXPECT_TRUE(config::ProblemsOf(*ReadFile(folder.File())).empty()) << right;
    EXPECT_TRUE(Complete({"--config", folder.File()}).ok()) << right;
  }
}

// The command line names the place of the socket, which decides about the file's metrics.
TEST(ConfigFile, AConflictWithTheCommandLineIsFoundAtTheStart) {
  const Folder folder;
  folder.Write("metrics-listen: unix:/tmp/a/metrics.sock\n");
  EXPECT_TRUE(Complete({"--config", folder.File(), "--socket", "/tmp/a/xpud.sock"}).ok());
  EXPECT_THAT(std::string(Complete({"--config", folder.File()}).status().message()),
              HasSubstr("xpud.yaml:1:1: metrics-listen: "));
}

TEST(ConfigFile, EveryMistakeIsNamedWithItsPlaceAndWhatIsAllowed) {
  EXPECT_THAT(
      ProblemsOf("log-level: loud\n"
                 "socket_mode: 0660\n"
                 "  \n"
                 "user-clients: 0\n"
                 "cache-limit: 1000\n"
                 "quotas:\n"
                 "  nobody-of-that-name: 1GiB\n"
                 "  0: lots\n"
                 "  root: 1GiB\n"
                 "ready-fd: 3\n"
                 "log-level: info\n"
                 "standby-executor: yes\n"
                 "device: [cpu]\n"
                 "socket:\n"),
      ElementsAre("x.yaml:1:12: log-level: 'loud' is not allowed; use one of trace, debug, info, warn, error",
                  "x.yaml:2:1: unknown key 'socket_mode'; did you mean 'socket-mode'?",
                  "x.yaml:4:15: user-clients: '0' is not allowed; use an integer of at least 1",
                  "x.yaml:5:14: cache-limit: '1000' is not allowed; use a size with a unit, such as 16GiB or "
                  "512MiB, at least 1MiB",
                  "x.yaml:7:3: quotas: unknown user 'nobody-of-that-name'; use an account's name or number",
                  "x.yaml:8:6: quotas: 'lots' is not allowed; use a size with a unit, such as 16GiB",
                  "x.yaml:10:1: 'ready-fd' is an option of the command line only",
                  "x.yaml:11:1: 'log-level' is already set in line 1; set it once",
                  "x.yaml:12:19: standby-executor: 'yes' is not allowed; use true or false",
                  "x.yaml:13:9: device: a list is not allowed; use one of auto, cpu, gpu, cuda, intel",
                  "x.yaml:14:1: socket: nothing is not allowed; use a path"));
}

TEST(ConfigFile, WhatIsNoMapOfKeysIsRefusedWhereItStands) {
  EXPECT_THAT(ProblemsOf("- a\n"), ElementsAre(HasSubstr("x.yaml:1:1: the file is a list")));
  EXPECT_THAT(ProblemsOf("socket: {\n"), ElementsAre(HasSubstr("not valid YAML")));
  EXPECT_THAT(ProblemsOf("device: cpu\n---\ndevice: gpu\n"), ElementsAre(HasSubstr("a second document")));
  EXPECT_THAT(ProblemsOf("quotas: 5GiB\n"), ElementsAre(HasSubstr("x.yaml:1:9: quotas: a value")));
  EXPECT_THAT(ProblemsOf("[a]: b\n"), ElementsAre(HasSubstr("a key must be a word, not a list")));
  EXPECT_THAT(ProblemsOf("quotas:\n  0: 1GiB\n  root: 1GiB\n"),
              ElementsAre(HasSubstr("x.yaml:3:3: quotas: uid:0 already has a quota")));
  EXPECT_THAT(ProblemsOf(""), IsEmpty());
  EXPECT_THAT(ProblemsOf("# nothing\nquotas:\n"), IsEmpty());
}

TEST(ConfigFile, TheCommandLineCountsWhereBothSaySomething) {
  const Folder folder;
  folder.Write(
      "log-level: warn\nuser-clients: 7\nmemory-quota: 3GiB\nquotas: {root: 1.5GiB, 4711: 0, root/team-a: "
      "1KiB}\n");
  const auto found = Complete({"--config", folder.File(), "--user-clients", "9"});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->options.log_level, "warn");
  EXPECT_EQ(found->options.user_clients, 9);
  EXPECT_EQ(found->options.memory_quota, uint64_t{3} << 30);
  EXPECT_THAT(found->options.quotas, ElementsAre(TenantQuota{{0}, uint64_t{3} << 29}, TenantQuota{{4711}, 0},
                                                 TenantQuota{{0, "team-a"}, 1024}));
  EXPECT_THAT(found->overridden, ElementsAre("user-clients"));
  EXPECT_EQ(found->origins.at("user-clients"), "command line");
  EXPECT_EQ(found->origins.at("log-level"), folder.File() + ":1:1");
}

TEST(ConfigFile, OneThatIsNamedHasToBeThereUnlessADashSaysOtherwise) {
  const Folder folder;
  EXPECT_TRUE(absl::IsNotFound(Complete({"--config", folder.File()}).status()));
  EXPECT_TRUE(Complete({"--config", "-" + folder.File()}).ok());
  folder.Write("log-level: loud\n");
  EXPECT_THAT(Complete({"--config", "-" + folder.File()}).status().message(), HasSubstr(":1:12: log-level"));
}

TEST(ConfigFile, OneThatOthersMayWriteIsRefused) {
  const Folder folder;
  folder.Write("log-level: warn\n");
  chmod(folder.File().c_str(), 0666);
  EXPECT_THAT(Complete({"--config", folder.File()}).status().message(), HasSubstr("chmod go-w"));
  chmod(folder.File().c_str(), 0644);
  EXPECT_TRUE(Complete({"--config", folder.File()}).ok());
}

TEST(ConfigFile, TheExampleInDeployIsWhatTheTableSays) {
  std::stringstream text;
  text << std::ifstream(XPUD_EXAMPLE_FILE).rdbuf();
  EXPECT_EQ(text.str(), ExampleFile()) << "write it anew: xpuctl config example > deploy/xpud.yaml";
}

TEST(ConfigFile, TheExampleSetsNothingAndIsValidWithEachKeySet) {
  EXPECT_THAT(ParseFile("x", ExampleFile()).settings, IsEmpty());
  const std::string set =
      std::regex_replace(ExampleFile(), std::regex("(^|\n)#((?:  )?[a-z0-9/-]+:)"), "$1$2");
  const std::string known = std::regex_replace(set, std::regex("alice|xpud-gateway"), "root");
  const File file = ParseFile("x", known);
  for (const Problem& problem : file.problems) ADD_FAILURE() << Describe(file, problem);
  for (const OptionRow& row : OptionRows()) {
    const bool there = std::ranges::any_of(file.settings, [&](const Setting& s) { return s.row == &row; });
    EXPECT_EQ(there, row.where == OptionRow::kBoth) << row.name;
  }
  EXPECT_EQ(file.quotas.size(), 3u);
}

}  // namespace
}  // namespace xpud::config
