// The subcommands. Each is implemented in the file of its name.
#pragma once

#include "tools/xpuctl/command.h"

namespace xpud::xpuctl {

int RunHelp(const Invocation& invocation);
// Prints what `command` does, and its options. Returns kOk.
int PrintHelpOf(const Command& command);
int RunStatus(const Invocation& invocation);
int RunDevices(const Invocation& invocation);
int RunPs(const Invocation& invocation);
int RunMemory(const Invocation& invocation);
int RunTop(const Invocation& invocation);
int RunQuery(const Invocation& invocation);
int RunQuota(const Invocation& invocation);
int RunClaim(const Invocation& invocation);
int RunGrant(const Invocation& invocation);
int RunProfile(const Invocation& invocation);
int RunFlight(const Invocation& invocation);
int RunEvents(const Invocation& invocation);
int RunLogs(const Invocation& invocation);
int RunKill(const Invocation& invocation);
int RunNice(const Invocation& invocation);
int RunDrain(const Invocation& invocation);
int RunConfig(const Invocation& invocation);
int RunDoctor(const Invocation& invocation);
int RunVersion(const Invocation& invocation);
int RunCompletion(const Invocation& invocation);
int RunManual(const Invocation& invocation);

}  // namespace xpud::xpuctl
