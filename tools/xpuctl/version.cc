#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"

namespace xpud::xpuctl {
namespace {

// Without a daemon the program's own version is the answer, and no error.
int PrintWithoutDaemon(Output output) {
  std::puts(output == Output::kJson ? "{\"xpuctl\":\"" XPUD_VERSION "\"}"
                                    : "xpuctl  " XPUD_VERSION "\nno daemon is running");
  return kOk;
}

void Print(const v1::GetVersionResponse& version) {
  std::printf("xpuctl  %s\nxpud    %s (%s)\nprotocol %u to %u, Level Zero %s\n", XPUD_VERSION,
              version.version().c_str(), version.build().c_str(), version.protocol_min(),
              version.protocol_max(), version.level_zero().c_str());
}

}  // namespace

int RunVersion(const Invocation& invocation) {
  if (const int refused = RefuseArguments("version", invocation)) return refused;
  auto client = ControlClient::Connect(invocation.address);
  if (absl::IsNotFound(client.status())) return PrintWithoutDaemon(invocation.output);
  if (!client.ok()) return Report(client.status());
  auto version = client->GetVersion();
  if (!version.ok()) return Report(version.status());
  if (invocation.output == Output::kJson) {
    std::puts(absl::StrCat("{\"xpuctl\":\"" XPUD_VERSION "\",\"daemon\":", ToJson(*version), "}").c_str());
  } else {
    Print(*version);
  }
  return kOk;
}

}  // namespace xpud::xpuctl
