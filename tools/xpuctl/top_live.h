// `top` on a terminal: redrawn in place, with keys.
#pragma once

#include "tools/xpuctl/command.h"
#include "tools/xpuctl/top_source.h"

namespace xpud::xpuctl {

// Whether to redraw in place, instead of printing one sample after another.
bool IsLive(const Invocation& invocation);
// Returns xpuctl's exit status.
int RunLive(const Invocation& invocation, TopSource& source);

}  // namespace xpud::xpuctl
