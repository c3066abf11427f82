#include <cstdio>

#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {

int RunPs(const Invocation& invocation) {
  if (const int refused = RefuseArguments("ps", invocation)) return refused;
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  auto list = client->ListSessions();
  if (!list.ok()) return Report(list.status());
  const bool json = invocation.output == Output::kJson;
  std::fputs((json ? ToJson(*list) + "\n" : SessionsText(*list)).c_str(), stdout);
  return kOk;
}

}  // namespace xpud::xpuctl
