// `top` on a terminal: drawn in place, with keys.
#pragma once

#include "tools/xpuctl/command.h"
#include "tools/xpuctl/top_source.h"

namespace xpud::xpuctl {

// Whether it is to be that, and not one picture after another.
bool IsLive(const Invocation& invocation);
// What xpuctl exits with.
int RunLive(const Invocation& invocation, TopSource& source);

}  // namespace xpud::xpuctl
