#include <cstdio>
#include <string>

#include "sdk/control/client.h"
#include "tools/xpuctl/commands.h"

namespace xpud::xpuctl {

int RunDrain(const Invocation& invocation) {
  const std::string state = invocation.arguments.empty() ? "on" : invocation.arguments[0];
  if (state != "on" && state != "off") return RefuseUsage("drain", "use on or off, not " + state);
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  const auto answer = client->SetDrain(state == "on");
  if (!answer.ok()) return Report(answer.status());
  std::printf(answer->drained() ? "drained: new sessions are refused; %u sessions are open\n"
                                : "new sessions are accepted; %u sessions are open\n",
              answer->sessions());
  return kOk;
}

}  // namespace xpud::xpuctl
