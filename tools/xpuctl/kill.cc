#include <cstdio>

#include "absl/strings/numbers.h"
#include "proto/base/text.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/commands.h"

namespace xpud::xpuctl {

int RunKill(const Invocation& invocation) {
  uint64_t id = 0;
  if (invocation.arguments.empty() || !absl::SimpleAtoi(invocation.arguments[0], &id))
    return RefuseUsage("kill", "it takes the number of a session; xpuctl ps lists them");
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  const auto session = client->CloseSession(id);
  if (!session.ok()) return Report(session.status());
  std::printf("closed session %lu of %s, pid %d\n", session->id(),
              PrintableText(session->client_name()).c_str(), session->pid());
  return kOk;
}

}  // namespace xpud::xpuctl
