// What `xpuctl doctor` looks at: each check says what was found on this host and, where that is not well,
// what to do. Nothing is changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/xpuctl/command.h"

namespace xpud::xpuctl {

enum class Health { kOk, kWarn, kFail };  // fail: xpud, or a part of it, does not work here

struct Check {
  std::string name;
  Health health;
  std::string found;
  std::string remedy;  // empty where all is well
};
using Checks = std::vector<Check>;

void CheckDaemon(const Invocation& invocation, Checks& checks);
void CheckKernel(Checks& checks);
void CheckLimits(Checks& checks);
void CheckProcessor(Checks& checks);
void CheckCache(Checks& checks);
void CheckGpus(Checks& checks);

// The judgements, apart from where the facts come from.
struct SocketFacts {
  std::string path;
  uint32_t mode = 0, folder_mode = 0;  // as stat says
  std::string owner, group;
  bool may_connect = false;
};
Check JudgeSocket(const SocketFacts& facts);

struct NvidiaFacts {
  int on_the_bus = 0;           // PCI functions that are GPUs of NVIDIA's
  int nodes = 0;                // /dev/nvidia0, ...
  bool control = false;         // /dev/nvidiactl
  bool uvm = false;             // /dev/nvidia-uvm
  bool permitted = false;       // to read and write them all
  std::string library;          // how libcuda is called
  std::string load_error = {};  // empty: it loads
};
Check JudgeNvidia(const NvidiaFacts& facts);

struct FolderFacts {
  std::string path;
  bool exists = false, mine = false;
  uint32_t mode = 0;
  uint64_t free_bytes = 0;
};
Check JudgeCache(const FolderFacts& facts);

std::string ChecksText(const Checks& checks);
std::string ChecksJson(const Checks& checks);

}  // namespace xpud::xpuctl
