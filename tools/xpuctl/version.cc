#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

// Without a daemon the program's own version is the answer, and no error.
int PrintWithoutDaemon(Output output) {
  std::puts(output == Output::kJson ? "{\"xpuctl\":\"" XPUD_VERSION "\"}"
                                    : "xpuctl  " XPUD_VERSION "\nno daemon is running");
  return kOk;
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
    std::fputs(VersionText(*version).c_str(), stdout);
  }
  return kOk;
}

}  // namespace xpud::xpuctl
