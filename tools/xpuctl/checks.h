// The checks of `xpuctl doctor`: each reports what was found on this host and, if something is wrong, what to
// do. They change nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/control/xpud.pb.h"
#include "tools/xpuctl/command.h"

namespace xpud::xpuctl {

enum class Health { kOk, kWarn, kFail };  // kFail: xpud, or a part of it, does not work on this host

struct Check {
  std::string name;
  Health health;
  std::string found;
  std::string remedy;  // empty if nothing is wrong
};
using Checks = std::vector<Check>;

// Returns what the daemon says of itself, if one answers.
std::optional<v1::Daemon> CheckDaemon(const Invocation& invocation, Checks& checks);
void CheckKernel(Checks& checks);
// The limits and the cache of `daemon` or, if there is none, those that one started here would have.
void CheckLimits(const std::optional<v1::Daemon>& daemon, Checks& checks);
void CheckProcessor(Checks& checks);
void CheckCache(const std::optional<v1::Daemon>& daemon, Checks& checks);
void CheckGpus(Checks& checks);
// Whether xpud-node-agent runs where there are claims that it has made.
void CheckAgent(const Invocation& invocation, Checks& checks);

// Evaluate facts, which are collected elsewhere.
struct SocketFacts {
  std::string path;
  uint32_t mode = 0, folder_mode = 0;  // as reported by stat
  std::string owner, group;
  bool may_connect = false;
};
Check JudgeSocket(const SocketFacts& facts);

struct AgentFacts {
  std::optional<int> pid = {};  // of xpud-node-agent on this host
  bool installed = false;       // its configuration is there
  size_t claims = 0;            // of cluster engines, which it looks after
};
Check JudgeAgent(const AgentFacts& facts);

struct NvidiaFacts {
  int on_the_bus = 0;           // PCI functions that are NVIDIA GPUs
  int nodes = 0;                // /dev/nvidia0, ...
  bool control = false;         // /dev/nvidiactl
  bool uvm = false;             // /dev/nvidia-uvm
  bool permitted = false;       // this user may read and write all of them
  std::string library;          // name of libcuda
  std::string load_error = {};  // empty: it loads
};
Check JudgeNvidia(const NvidiaFacts& facts);

struct FolderFacts {
  std::string path;
  bool exists = false;
  bool mine = false;  // belongs to the daemon's user, or to this one if no daemon answers
  uint32_t mode = 0;
  uint64_t free_bytes = 0;
};
Check JudgeCache(const FolderFacts& facts);

std::string ChecksText(const Checks& checks);
std::string ChecksJson(const Checks& checks);

}  // namespace xpud::xpuctl
