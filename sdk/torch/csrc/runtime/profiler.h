// torch.profiler: the commands of this process on xpud as activities of Kineto, PyTorch's profiler.
#pragma once

namespace xpud::shim {

// Whether this torch has a Kineto that takes profilers of other devices: from 2.13 on.
bool RecordsActivities();

}  // namespace xpud::shim
