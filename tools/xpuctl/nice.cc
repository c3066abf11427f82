#include <cstdio>

#include "absl/strings/numbers.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/commands.h"

namespace xpud::xpuctl {

int RunNice(const Invocation& invocation) {
  uint64_t id = 0;
  uint32_t nice = 0;
  if (invocation.arguments.size() != 2 || !absl::SimpleAtoi(invocation.arguments[0], &id) ||
      !absl::SimpleAtoi(invocation.arguments[1], &nice))
    return RefuseUsage("nice", "it takes the number of a session, which xpuctl ps lists, and 0 to 19");
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  const auto set = client->SetNice(id, nice);
  if (!set.ok()) return Report(set.status());
  std::printf("session %lu: nice %u to %u\n", id, set->before(), set->nice());
  return kOk;
}

}  // namespace xpud::xpuctl
