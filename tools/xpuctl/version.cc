#include <cstdio>

#include "absl/strings/str_cat.h"
#include "proto/base/text.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

// Whether no daemon answered: none runs, or the gateway to it is down. Refusals are answers.
bool IsAbsent(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// If no daemon answers, prints xpuctl's own version; that is not an error.
int PrintWithoutDaemon(Output output, const absl::Status& why) {
  const std::string reason =
      absl::IsNotFound(why) ? "no daemon is running"
                            : absl::StrCat("no daemon answers: ", PrintableText(std::string(why.message())));
  std::fputs(output == Output::kJson ? Document("{\"xpuctl\":\"" XPUD_VERSION "\"}").c_str()
                                     : absl::StrCat("xpuctl  " XPUD_VERSION "\n", reason, "\n").c_str(),
             stdout);
  return kOk;
}

}  // namespace

int RunVersion(const Invocation& invocation) {
  auto client = control::Client::Connect(invocation.address);
  if (IsAbsent(client.status())) return PrintWithoutDaemon(invocation.output, client.status());
  if (!client.ok()) return Report(client.status());
  auto version = client->GetVersion();
  if (IsAbsent(version.status())) return PrintWithoutDaemon(invocation.output, version.status());
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
