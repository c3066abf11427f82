#include <cstdio>

#include "absl/strings/str_cat.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

// If no daemon runs, prints xpuctl's own version; that is not an error.
int PrintWithoutDaemon(Output output) {
  std::fputs(output == Output::kJson ? Document("{\"xpuctl\":\"" XPUD_VERSION "\"}").c_str()
                                     : "xpuctl  " XPUD_VERSION "\nno daemon is running\n",
             stdout);
  return kOk;
}

}  // namespace

int RunVersion(const Invocation& invocation) {
  auto client = control::Client::Connect(invocation.address);
  if (absl::IsNotFound(client.status())) return PrintWithoutDaemon(invocation.output);
  if (!client.ok()) return Report(client.status());
  auto version = client->GetVersion();
  if (!version.ok()) return Report(version.status());
  if (invocation.output == Output::kJson) {
    const std::string object =
        absl::StrCat("{\"xpuctl\":\"" XPUD_VERSION "\",\"daemon\":", ToJson(*version), "}");
    std::fputs(Document(object).c_str(), stdout);
  } else {
    std::fputs(VersionText(*version).c_str(), stdout);
  }
  return kOk;
}

}  // namespace xpud::xpuctl
