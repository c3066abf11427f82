#include "deploy/agent/configuration.h"

#include <sys/stat.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// The problems of a text: "LINE:COLUMN: what".
std::vector<std::string> ProblemsOf(const std::string& text) {
  Configuration configuration;
  std::vector<std::string> out;
  for (const Problem& problem : ParseConfiguration(text, configuration))
    out.push_back(absl::StrCat(problem.line, ":", problem.column, ": ", problem.text));
  return out;
}

Configuration Parsed(const std::string& text) {
  Configuration configuration;
  EXPECT_THAT(ParseConfiguration(text, configuration), IsEmpty());
  return configuration;
}

TEST(AgentConfiguration, IsTheDefaultWithoutAText) {
  const Configuration configuration = Parsed("");
  EXPECT_EQ(configuration.node, HostName());
  EXPECT_EQ(configuration.socket, "/run/xpud/xpud.sock");
  EXPECT_EQ(configuration.kubernetes.mode, Configuration::KubernetesMode::kOff);
  EXPECT_TRUE(configuration.grants.budgets.users.empty());
  EXPECT_FALSE(configuration.grants.budgets.fallback.has_value());
}

TEST(AgentConfiguration, IsWhatTheTextSays) {
  const Configuration configuration = Parsed(R"(
socket: /tmp/x/xpud.sock
node: node-7
grants:
  socket: off
  users:
    root: {share: 50, memory: 4GiB, claims: 3, class: realtime, lease: 90s}
    1234: {}
  groups:
    7002: {share: 20}
    root: {share: 10}
    7001: {claims: 2}
  default: {share: 5, class: batch}
kubernetes: {mode: device-plugin, slots: 4, api-server: "https://10.0.0.1:6443"}
slurm: {enabled: true, scontrol: /opt/slurm/scontrol, squeue: /opt/slurm/squeue, best-class: batch, memory-per-share: 64MiB}
)");
  EXPECT_EQ(configuration.socket, "/tmp/x/xpud.sock");
  EXPECT_EQ(configuration.node, "node-7");
  EXPECT_EQ(configuration.grants.socket, "");
  EXPECT_EQ(configuration.grants.budgets.users.at(0), (Budget{50, uint64_t{4} << 30, 3, "realtime", 90'000}));
  EXPECT_EQ(configuration.grants.budgets.users.at(1234), Budget());
  EXPECT_THAT(configuration.grants.budgets.groups,
              ElementsAre(Pair(7002, Budget{.share = 20}), Pair(0, Budget{.share = 10}),
                          Pair(7001, Budget{.claims = 2})))
      << "in the file's order";
  EXPECT_EQ(configuration.grants.budgets.fallback, (Budget{5, std::nullopt, 16, "batch", 3'600'000}));
  EXPECT_EQ(configuration.kubernetes.mode, Configuration::KubernetesMode::kDevicePlugin);
  EXPECT_EQ(configuration.kubernetes.slots, 4u);
  EXPECT_EQ(configuration.kubernetes.api_server, "https://10.0.0.1:6443");
  EXPECT_EQ(configuration.slurm, (Configuration::SlurmSettings{.enabled = true,
                                                               .scontrol = "/opt/slurm/scontrol",
                                                               .squeue = "/opt/slurm/squeue",
                                                               .best_class = "batch",
                                                               .memory_per_share = uint64_t{64} << 20}));
}

TEST(AgentConfiguration, ReportsAllProblemsWithTheirPlace) {
  EXPECT_THAT(
      ProblemsOf(R"(socket: xpud.sock
nod: a
state:
grants:
  users:
    nobody-of-this-name: {share: 5}
    root: {share: 101, memory: 12, claims: 0, class: fast, lease: 2}
    0: {}
  default: 5
kubernetes: {mode: csi, slots: [], zzzzzz: 1}
slurm: {enabled: yes, scontrol: scontrol}
nod: b
)"),
      ElementsAre(
          "1:9: socket: 'xpud.sock' is not allowed; use an absolute path of at most 107 bytes",
          "2:1: unknown key 'nod' in the file; did you mean 'node'?",
          "3:1: state: nothing is not allowed; use an absolute path",
          "6:5: unknown user 'nobody-of-this-name'; use an account's name or number",
          "7:19: share: '101' is not allowed; use an integer from 1 to 100",
          "7:32: memory: '12' is not allowed; use a size with a unit, such as 16GiB or 512MiB",
          "7:44: claims: '0' is not allowed; use an integer from 1 to 1024",
          "7:54: class: 'fast' is not allowed; use one of realtime, interactive, batch",
          "7:67: lease: '2' is not allowed; use a time with a unit from 1s to 30d, such as 90s, 5m or 2h",
          "8:5: user 0 already has a budget in this file; set it once",
          "9:12: grants: default: a value is not allowed; use a map of keys to values",
          "10:20: mode: 'csi' is not allowed; use one of off, dra, device-plugin",
          "10:32: slots: a list is not allowed; use an integer from 1 to 100",
          "10:36: unknown key 'zzzzzz' in kubernetes; use one of mode, kubelet, cdi, sysfs, api-server, "
          "token-file, ca-file, slots",
          "11:18: enabled: 'yes' is not allowed; use true or false",
          "11:33: scontrol: 'scontrol' is not allowed; use an absolute path",
          "12:1: 'nod' is already set in line 2; set it once"));
}

TEST(AgentConfiguration, IsNotReadFromWhatIsNoYaml) {
  EXPECT_THAT(ProblemsOf("grants: {"), ElementsAre(HasSubstr("not valid YAML")));
  EXPECT_THAT(ProblemsOf("- a\n"),
              ElementsAre("1:1: the file: a list is not allowed; use a map of keys to values"));
  EXPECT_THAT(ProblemsOf("node: a\n---\nnode: b\n"), ElementsAre(HasSubstr("a second document begins")));
}

TEST(AgentConfiguration, GroupsAreNamedOnce) {
  EXPECT_THAT(
      ProblemsOf("grants:\n  groups:\n    nogroup-of-this-name: {}\n    root: {share: 0}\n    0: {}\n"),
      ElementsAre("3:5: unknown group 'nogroup-of-this-name'; use a group's name or number",
                  "4:19: share: '0' is not allowed; use an integer from 1 to 100",
                  "5:5: group 0 already has a budget in this file; set it once"));
}

TEST(AgentConfiguration, KeysThatNeedARestartAreNamedIfTheyDiffer) {
  const Configuration before = Parsed("");
  EXPECT_THAT(KeysForRestart(before, before), IsEmpty());
  EXPECT_THAT(KeysForRestart(before, Parsed("grants: {users: {0: {}}, groups: {0: {}}, default: {}}")),
              IsEmpty());
  EXPECT_THAT(KeysForRestart(before, Parsed("socket: /run/xpud/xpud.sock\nkubernetes: {slots: 10}")),
              IsEmpty())
      << "the defaults, written down";
  EXPECT_THAT(KeysForRestart(Parsed("slurm: {memory-per-share: 1GiB}"), before),
              ElementsAre("slurm: memory-per-share"));
  const Configuration all = Parsed(R"(
socket: /x.sock
state: /x
node: x
metrics-listen: x
grants: {socket: /x.sock, users: {0: {}}, groups: {0: {}}, default: {}}
kubernetes: {mode: dra, kubelet: /x, cdi: /x, api-server: x, token-file: /x, ca-file: /x, slots: 1}
slurm: {enabled: true, scontrol: /x, squeue: /x, best-class: batch, memory-per-share: 1GiB}
)");
  EXPECT_THAT(
      KeysForRestart(before, all),
      ElementsAre("socket", "state", "node", "metrics-listen", "grants: socket", "kubernetes: mode",
                  "kubernetes: kubelet", "kubernetes: cdi", "kubernetes: api-server",
                  "kubernetes: token-file", "kubernetes: ca-file", "kubernetes: slots", "slurm: enabled",
                  "slurm: scontrol", "slurm: squeue", "slurm: best-class", "slurm: memory-per-share"));
}

TEST(AgentConfiguration, IsReadFromAFileThatOnlyItsOwnerMayWrite) {
  const std::string path = testing::TempDir() + "/agent-configuration-test.yaml";
  std::ofstream(path) << "socket: x\n";
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(std::string(ReadConfiguration(path).status().message()), HasSubstr(path + ":1:9: socket: 'x'"));
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(ReadConfiguration(path).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  std::ofstream(path) << "slurm: {enabled: true}\ngrants: {socket: off}\n";
  EXPECT_THAT(std::string(ReadConfiguration(path).status().message()),
              HasSubstr(path + ": slurm is enabled, and grants has socket: off"));
  std::filesystem::remove(path);
  EXPECT_EQ(ReadConfiguration(path).status().code(), absl::StatusCode::kNotFound);
}

// In the example prose begins "# ", and what is commented out with '#' and a key.
std::string Uncommented(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  for (std::string line; std::getline(file, line);) {
    const bool is_key =
        line.size() > 1 && line[0] == '#' && (line[1] != ' ' || line.compare(0, 3, "#  ") == 0);
    text += (is_key ? line.substr(1) : line) + "\n";
  }
  return text;
}

TEST(AgentConfiguration, ExampleIsTrue) {
  std::ifstream file(XPUD_EXAMPLE_FILE);
  for (std::string line; std::getline(file, line);) EXPECT_TRUE(line.empty() || line[0] == '#') << line;
  Configuration expected;
  expected.node = "HOSTNAME";
  expected.kubernetes.api_server = "https://10.0.0.1:6443";
  expected.metrics_listen = "9465";
  expected.kubernetes.api_server = "https://10.0.0.1:6443";
  expected.grants.budgets.users = {{1000, {.memory = uint64_t{64} << 30}}};
  expected.grants.budgets.groups = {{100, {.share = 50, .memory = uint64_t{16} << 30, .claims = 8}}};
  expected.grants.budgets.fallback = Budget{25, uint64_t{4} << 30, 4, "batch", 600'000};
  expected.slurm.memory_per_share = uint64_t{1} << 30;
  EXPECT_EQ(Parsed(Uncommented(XPUD_EXAMPLE_FILE)), expected);
}

}  // namespace
}  // namespace xpud::agent
