// events: prints the daemon's events, newest last; with -w also new ones.
#include <cstdio>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/event_view.h"
#include "tools/xpuctl/samples.h"

namespace xpud::xpuctl {
namespace {

// Calls `each` with every event, and with `follow` for new ones, until it returns false. Returns errors.
absl::Status ForEach(control::Client& client, bool follow, absl::FunctionRef<bool(const v1::Event&)> each) {
  uint64_t last = 0;
  while (!Interrupted()) {
    ASSIGN_OR_RETURN(const v1::ListEventsResponse list, client.ListEvents(last, follow));
    if (list.events().empty() && !follow) break;
    for (const v1::Event& event : list.events()) {
      if (!each(event)) return absl::OkStatus();
      last = event.sequence();
    }
  }
  return absl::OkStatus();
}

int PrintDocument(control::Client& client) {
  std::string rows;
  const absl::Status status = ForEach(client, false, [&](const v1::Event& event) {
    absl::StrAppend(&rows, rows.empty() ? "" : ",", ToJson(event));
    return true;
  });
  if (!status.ok()) return Report(status);
  std::fputs(Document(absl::StrCat("{\"events\":[", rows, "]}")).c_str(), stdout);
  return kOk;
}

}  // namespace

int RunEvents(const Invocation& invocation) {
  const bool follow = invocation.Has("-w");
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  if (invocation.output == Output::kJson && !follow) return PrintDocument(*client);
  if (follow) CatchInterrupts();
  uint64_t last = 0;
  const absl::Status status = ForEach(*client, follow, [&](const v1::Event& event) {
    const bool text = invocation.output == Output::kTable;
    std::fputs((text ? EventText(event, last) : Document(ToJson(event))).c_str(), stdout);
    last = event.sequence();
    return std::fflush(stdout) == 0 && !Interrupted();
  });
  return status.ok() ? kOk : Report(status);
}

}  // namespace xpud::xpuctl
