// Checks that a daemon runs, its version, and who may use it.
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/transport/layout.h"
#include "proto/wire/decode.h"
#include "sdk/client/address.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/checks.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

std::string GroupName(gid_t gid) {
  std::array<char, 4096> buffer;
  group entry;
  group* found = nullptr;
  if (getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->gr_name;
  return absl::StrCat(gid);
}

void CheckSocket(const std::string& path, Checks& checks) {
  struct stat info, folder;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (stat(path.c_str(), &info) != 0 || stat(parent.c_str(), &folder) != 0) return;
  checks.push_back(JudgeSocket({path, info.st_mode, folder.st_mode, UserName(info.st_uid),
                                GroupName(info.st_gid), access(path.c_str(), W_OK) == 0}));
}

Check JudgeVersion(const v1::GetVersionResponse& version) {
  Check check = {"version", Health::kOk,
                 absl::StrCat("xpud ", version.version(), " (", version.build(), "), xpuctl ", XPUD_VERSION),
                 ""};
  if (version.protocol_max() < wire::kOldestVersion || version.protocol_min() > wire::kNewestVersion) {
    check.health = Health::kFail;
    check.remedy = absl::StrCat("clients of this version support protocols ", wire::kOldestVersion, " to ",
                                wire::kNewestVersion, ", the daemon ", version.protocol_min(), " to ",
                                version.protocol_max(), ": install the same version of both");
  } else if (version.version() != XPUD_VERSION) {
    check.health = Health::kWarn;
    check.remedy = "restart the daemon after an update";
  }
  return check;
}

void CheckState(const v1::GetStatusResponse& status, Checks& checks) {
  if (status.daemon().drained()) {
    checks.push_back({"drained", Health::kWarn, "the daemon refuses new sessions", "xpuctl drain off"});
  }
  for (const v1::Device& device : status.devices()) {
    const std::string name = absl::StrCat("device ", device.index());
    if (device.has_executors_replaced() && !device.has_executor_pid()) {
      checks.push_back({name, Health::kWarn, "its executor was lost and is being replaced",
                        "wait a moment; see the reason in xpuctl events"});
    } else if (device.kernel_compiles_failed() > 0) {
      checks.push_back({name, Health::kWarn,
                        absl::StrCat(device.kernel_compiles_failed(), " kernels could not be compiled"),
                        "see the daemon's log for names and reasons"});
    } else {
      checks.push_back({name, Health::kOk, absl::StrCat(device.name(), " (", device.vendor(), ")"), ""});
    }
  }
}

std::optional<v1::Daemon> AskDaemon(const std::string& socket, Checks& checks) {
  auto client = control::Client::Connect(socket);
  const auto version = client.ok() ? client->GetVersion() : client.status();
  if (!version.ok()) {
    checks.push_back({"control", Health::kWarn, std::string(version.status().message()),
                      "the control plane answers root and the daemon's user: run xpuctl as one of them"});
    return std::nullopt;
  }
  checks.push_back(JudgeVersion(*version));
  const auto status = client->GetStatus();
  if (!status.ok()) return std::nullopt;
  CheckState(*status, checks);
  return status->daemon();
}

// If no daemon runs, that is a problem only if one was named, or if the system's should run.
Check JudgeAbsence(const Invocation& invocation, const absl::Status& status) {
  const std::string found(status.message());
  if (!absl::IsNotFound(status)) return {"daemon", Health::kFail, found, "see the check of its socket"};
  switch (client::FindDaemonPlace(invocation.address).whose) {
    case client::DaemonPlace::Whose::kNamed:
      return {"daemon", Health::kFail, found,
              invocation.address.empty() ? "start it, or unset XPUD_ADDRESS"
                                         : "start it, or use another --address"};
    case client::DaemonPlace::Whose::kSystem:
      return {"daemon", Health::kFail, found, "start the system's daemon: systemctl start xpud"};
    case client::DaemonPlace::Whose::kPrivate:
      return {"daemon", Health::kOk, "no daemon is running; the first client starts a private one", ""};
  }
}

}  // namespace

std::optional<v1::Daemon> CheckDaemon(const Invocation& invocation, Checks& checks) {
  const auto socket = client::FindDaemonSocket(invocation.address);
  if (socket.ok()) {
    checks.push_back({"daemon", Health::kOk, "answers at " + *socket, ""});
    CheckSocket(*socket, checks);
    return AskDaemon(*socket, checks);
  }
  checks.push_back(JudgeAbsence(invocation, socket.status()));
  if (!absl::IsNotFound(socket.status()))
    CheckSocket(client::FindDaemonPlace(invocation.address).address, checks);
  return std::nullopt;
}

}  // namespace xpud::xpuctl
