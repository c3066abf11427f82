// When work ran on the GPUs, as CUPTI, CUDA's profiling library, records it. It also sees the parts of graphs
// that are replayed. The library is opened when tracing starts: the file that XPUD_CUPTI names, or
// libcupti.so.13 or .12, which the process may have loaded from anywhere. Thread-safe.
#pragma once

#include "proto/base/ze_ext.h"

namespace xpud::drivers::cuda {

// See proto/base/ze_ext.h.
ze_result_t StartTrace(xpud_pfnTraceReport_t report, void* user);
ze_result_t FlushTrace();
ze_result_t StopTrace();
void SetTraceTag(uint64_t tag);

}  // namespace xpud::drivers::cuda
