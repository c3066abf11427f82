#include "kernels/families/scatter_planner.h"

#include <algorithm>

#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

constexpr int64_t kMaxRowSlices = 64;        // each goes through the whole index
constexpr int64_t kGpuThreads = 128 * 1024;  // enough to fill a device

struct Cut {
  int64_t column_slice = 1, row_slice = 1;
};

// Columns first; rows too where there are few columns, while going through the index stays cheap next to the
// additions.
Cut HostCut(int64_t rows, int64_t columns, int64_t count, size_t element) {
  const float nanoseconds = 2.0f * static_cast<float>(element) / kBytesPerNanosecond + 0.02f;
  const int64_t wanted =
      std::clamp<int64_t>(static_cast<int64_t>(static_cast<float>(count) * static_cast<float>(columns) *
                                               nanoseconds / kSliceNanoseconds),
                          1, 16);
  const int64_t line = 64 / static_cast<int64_t>(element);
  const int64_t column_slice =
      std::min(columns, std::max(CeilDiv(CeilDiv(columns, wanted), line), int64_t{4}) * line);
  const int64_t ranges = std::clamp<int64_t>(wanted / CeilDiv(columns, column_slice), 1,
                                             std::min<int64_t>(rows, std::max<int64_t>(columns / 4, 1)));
  return {column_slice, CeilDiv(rows, ranges)};
}

}  // namespace

absl::StatusOr<Readiness> ScatterPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const Operand &out = call.outputs[0], &index = call.inputs[0], &source = call.inputs[1];
  const int64_t rows = out.sizes[0], columns = out.sizes[1], count = index.sizes[0];
  if (count == 0 || columns == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;

  ScatterKey key;
  key.type = out.dtype;
  key.index = index.dtype;
  key.contiguous = out.strides[1] == 1 && source.strides[1] == 1;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
  if (kernel == nullptr) return Readiness::kCompiling;

  Cut cut;
  if (gpu) {
    cut.row_slice =
        CeilDiv(std::max<int64_t>(rows, 1), std::clamp<int64_t>(kGpuThreads / columns, 1, kMaxRowSlices));
  } else {
    cut = HostCut(std::max<int64_t>(rows, 1), columns, count, ops::SizeOf(out.dtype));
  }
  const int64_t ranges = std::max<int64_t>(CeilDiv(rows, cut.row_slice), 1);
  Launch& launch = launches.Add();
  if (gpu) {
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(ranges * columns, kGpuLanes)));
    launch.group_size = {kGpuLanes, 1, 1};
  } else {
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(columns, cut.column_slice)),
                 static_cast<uint32_t>(ranges));
  }
  for (void* pointer : {out.data, index.data, source.data, static_cast<void*>(call.error_word)})
    launch.Push(pointer);
  for (const int64_t number :
       {rows, columns, count, call.attributes[0].AsInteger(), cut.column_slice, cut.row_slice, out.strides[0],
        out.strides[1], index.strides[0], source.strides[0], source.strides[1]}) {
    launch.Push(number);
  }
  return Readiness::kReady;
}

}  // namespace xpud::kernels
