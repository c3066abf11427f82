// doctor: checks whether xpud works on this host, and says what to do if not.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "tools/xpuctl/checks.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/json.h"

namespace xpud::xpuctl {

int RunDoctor(const Invocation& invocation) {
  Checks checks;
  const std::optional<v1::Daemon> daemon = CheckDaemon(invocation, checks);
  CheckKernel(checks);
  CheckLimits(daemon, checks);
  CheckProcessor(checks);
  CheckGpus(checks);
  CheckCache(daemon, checks);
  if (daemon) CheckAgent(invocation, checks);
  const bool table = invocation.output == Output::kTable;
  std::fputs((table ? ChecksText(checks) : Document(ChecksJson(checks))).c_str(), stdout);
  const bool fails =
      std::ranges::any_of(checks, [](const Check& check) { return check.health == Health::kFail; });
  return fails ? kError : kOk;
}

}  // namespace xpud::xpuctl
