#include "tools/xpuctl/checks.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/text.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

constexpr const char* kHealthNames[] = {"ok", "warn", "fail"};

const char* NameOf(Health health) { return kHealthNames[static_cast<size_t>(health)]; }

}  // namespace

Check JudgeSocket(const SocketFacts& facts) {
  Check check = {
      "socket", Health::kOk,
      absl::StrFormat("%s, mode %04o, of %s:%s", facts.path, facts.mode & 07777, facts.owner, facts.group),
      ""};
  const std::string folder = facts.path.substr(0, facts.path.rfind('/'));
  if ((facts.folder_mode & S_IWOTH) != 0 && (facts.folder_mode & S_ISVTX) == 0) {
    check.health = Health::kFail;
    check.remedy = absl::StrCat("other users could replace the socket: chmod o-w ", folder);
  } else if (!facts.may_connect) {
    check.health = Health::kFail;
    check.remedy = absl::StrCat("you may not connect: join its group (sudo adduser $USER ", facts.group,
                                ") and log in again");
  } else if ((facts.mode & S_IWOTH) != 0 && (facts.folder_mode & S_IXOTH) != 0) {
    check.health = Health::kWarn;
    check.remedy = "every user of the machine may use the devices: start xpud with --socket-mode 0660";
  }
  return check;
}

Check JudgeAgent(const AgentFacts& facts) {
  const std::string claims = facts.claims == 0 ? "" : absl::StrCat("; ", facts.claims, " claims of engines");
  if (facts.pid) return {"node agent", Health::kOk, absl::StrCat("pid ", *facts.pid, claims), ""};
  if (facts.claims == 0)
    return {"node agent", Health::kOk, facts.installed ? "installed, off" : "not installed", ""};
  return {"node agent", Health::kWarn, absl::StrCat("not running", claims),
          "nobody removes these claims when their jobs end: systemctl start xpud-node-agent"};
}

Check JudgeNvidia(const NvidiaFacts& facts) {
  Check check = {"nvidia", Health::kFail, "", ""};
  if (facts.on_the_bus == 0 && facts.nodes == 0) return {"nvidia", Health::kOk, "no NVIDIA GPU", ""};
  check.found =
      absl::StrCat(std::max(facts.on_the_bus, facts.nodes), " NVIDIA GPUs, ", facts.nodes, " device nodes, ",
                   facts.library, facts.load_error.empty() ? " loads" : " does not load");
  if (facts.nodes == 0 || !facts.control) {
    check.remedy = "load the driver and create its nodes: modprobe nvidia && nvidia-modprobe -c 0 -u";
  } else if (!facts.uvm) {
    check.remedy = "/dev/nvidia-uvm is missing: nvidia-modprobe -u";
  } else if (!facts.permitted) {
    check.remedy = "this user may not read and write /dev/nvidia*: check the nodes' owner and mode";
  } else if (!facts.load_error.empty()) {
    check.remedy = absl::StrCat("install the driver's libcuda, or set XPUD_CUDA_LIBRARY to its path: ",
                                facts.load_error);
  } else {
    check.health = Health::kOk;
  }
  return check;
}

Check JudgeCache(const FolderFacts& facts) {
  constexpr uint64_t kRoom = uint64_t{1} << 30;  // the daemon's default cache limit
  if (!facts.exists)
    return {"cache", Health::kOk, facts.path + " does not exist yet; the first daemon creates it", ""};
  Check check = {"cache", Health::kOk,
                 absl::StrFormat("%s, mode %04o, %s free", facts.path, facts.mode & 07777,
                                 Bytes(static_cast<double>(facts.free_bytes))),
                 ""};
  if (!facts.mine) {
    check.health = Health::kWarn;
    check.remedy =
        "it belongs to another user, so your daemon does not use it and compiles at each start: remove it";
  } else if ((facts.mode & (S_IWGRP | S_IWOTH)) != 0) {
    check.health = Health::kWarn;
    check.remedy = absl::StrCat(
        "other users could put kernels there, so the daemon does not use it and compiles at each start: "
        "chmod 0700 ",
        facts.path);
  } else if (facts.free_bytes < kRoom) {
    check.health = Health::kWarn;
    check.remedy = "free some space, or start xpud with a smaller --cache-limit";
  }
  return check;
}

std::string ChecksText(const Checks& checks) {
  std::string text;
  for (const Check& check : checks) {
    absl::StrAppendFormat(&text, "%-4s  %-12s  %s\n", NameOf(check.health), check.name,
                          PrintableText(check.found));
    if (!check.remedy.empty()) absl::StrAppendFormat(&text, "%20s-> %s\n", "", PrintableText(check.remedy));
  }
  return text;
}

std::string ChecksJson(const Checks& checks) {
  std::string rows;
  for (const Check& check : checks) {
    absl::StrAppend(&rows, rows.empty() ? "" : ",", "{\"check\":", JsonString(check.name),
                    ",\"result\":", JsonString(NameOf(check.health)), ",\"found\":", JsonString(check.found));
    if (!check.remedy.empty()) absl::StrAppend(&rows, ",\"remedy\":", JsonString(check.remedy));
    rows += "}";
  }
  return absl::StrCat("{\"checks\":[", rows, "]}");
}

}  // namespace xpud::xpuctl
