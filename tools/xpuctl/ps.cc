#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/control_client.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

void Print(const v1::ListSessionsResponse& list) {
  Table table({">SESSION", ">PID", "USER", "NAME", "TENANT", ">MEMORY", ">PEAK", ">HOST", ">BUFFERS",
               ">QUEUES", ">COMMANDS", ">WAITING", ">BUSY", ">UPLOADED", ">DOWNLOADED", ">AGE"});
  for (const v1::Session& session : list.sessions()) {
    const uint64_t waiting = session.commands_submitted() - session.commands_completed();
    table.Add({absl::StrCat(session.id()), absl::StrCat(session.pid()), UserName(session.uid()),
               session.client_name(), session.tenant(), Bytes(static_cast<double>(session.memory_bytes())),
               Bytes(static_cast<double>(session.memory_peak_bytes())),
               Bytes(static_cast<double>(session.host_memory_bytes())), absl::StrCat(session.buffers()),
               absl::StrCat(session.queues()), Count(static_cast<double>(session.commands_completed())),
               Count(static_cast<double>(waiting)), Duration(session.busy_ns()),
               Bytes(static_cast<double>(session.uploaded_bytes())),
               Bytes(static_cast<double>(session.downloaded_bytes())), Duration(session.age_ns())});
  }
  std::fputs(table.ToString().c_str(), stdout);
}

}  // namespace

int RunPs(const Invocation& invocation) {
  if (const int refused = RefuseArguments("ps", invocation)) return refused;
  auto client = ControlClient::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  auto list = client->ListSessions();
  if (!list.ok()) return Report(list.status());
  invocation.output == Output::kJson ? void(std::puts(ToJson(*list).c_str())) : Print(*list);
  return kOk;
}

}  // namespace xpud::xpuctl
