#include <cstdio>

#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

int RunStatus(const Invocation& invocation) {
  if (const int refused = RefuseArguments("status", invocation)) return refused;
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  auto status = client->GetStatus();
  if (!status.ok()) return Report(status.status());
  const bool json = invocation.output == Output::kJson;
  std::fputs((json ? ToJson(*status) + "\n" : StatusText(*status)).c_str(), stdout);
  return kOk;
}

}  // namespace xpud::xpuctl
