#include "kernels/families/layer_norm_backward_planner.h"

#include <algorithm>

#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

constexpr float kElementNanoseconds = 0.6f;  // two passes over grad and x, one over the sums
// More parts feed more groups, but each costs the merge two rows.
constexpr int64_t kHostParts = 64, kGpuParts = 264, kWarpParts = 256;
constexpr int64_t kMaxPart = 1024;  // rows: what is added up in a row stays exact enough

// Rows of a part.
int64_t PartOf(int64_t rows, int64_t columns, bool gpu, bool warps) {
  if (gpu) return std::min(CeilDiv(rows, warps ? kWarpParts : kGpuParts), kMaxPart);
  const int64_t slice = SliceOf(rows, kElementNanoseconds * static_cast<float>(columns), 1);
  return std::min(std::max(slice, CeilDiv(rows, kHostParts)), kMaxPart);
}

}  // namespace

absl::StatusOr<Readiness> LayerNormBackwardPlanner::Plan(const OpCall& call, Workspace workspace,
                                                         LaunchList& launches) {
  const Operand &dx = call.outputs[0], &dweight = call.outputs[1], &dbias = call.outputs[2];
  const Operand &grad = call.inputs[0], &x = call.inputs[1], &mean = call.inputs[2], &rstd = call.inputs[3],
                &weight = call.inputs[4];
  const int64_t rows = x.sizes[0], columns = x.sizes[1];
  if (columns == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;

  LayerNormBackwardKey key;
  key.weighted = weight.present;
  key.types = {dx.dtype, dweight.dtype, dbias.dtype, grad.dtype,
               x.dtype,  mean.dtype,    rstd.dtype,  weight.present ? weight.dtype : x.dtype};
  if (cache_.target() == Target::kNvptx) {
    const int block = RowBlock(columns, {&dx, &grad, &x, weight.present ? &weight : &x}, {});
    key.rows = PlanRows(rows, columns, block, 2);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(rows_, key.Pack(/*merge=*/false)));
  ASSIGN_OR_RETURN(const Kernel* const merge, cache_.Find(merge_, key.Pack(/*merge=*/true)));
  if (kernel == nullptr || merge == nullptr) return Readiness::kCompiling;

  const int64_t part = rows == 0 ? 1 : PartOf(rows, columns, gpu, key.rows.warps);
  const int64_t parts = CeilDiv(rows, part);
  void* sums = nullptr;
  if (parts > 0) {
    const size_t size = key.accumulate() == Scalar::kF64 ? sizeof(double) : sizeof(float);
    ASSIGN_OR_RETURN(sums, workspace(static_cast<size_t>(parts) * 2 * static_cast<size_t>(columns) * size));
    Launch& launch = launches.Add();
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(parts, gpu ? key.rows.rows_a_group() : 1)));
    if (gpu) launch.group_size = {kGpuLanes, 1, 1};
    for (void* pointer :
         {dx.data, sums, grad.data, x.data, mean.data, rstd.data, weight.present ? weight.data : nullptr})
      launch.Push(pointer);
    for (const int64_t number : {rows, columns, part}) launch.Push(number);
  }
  const int64_t slice = gpu ? kWarpLanes : SliceOf(columns, 0.2f * static_cast<float>(parts + 1));
  Launch& merging = launches.Add();
  merging.Reset(merge, static_cast<uint32_t>(CeilDiv(columns, slice)));
  if (gpu) merging.group_size = {kGpuLanes, 1, 1};
  for (void* pointer : {dweight.data, dbias.data, sums}) merging.Push(pointer);
  for (const int64_t number : {columns, parts, slice}) merging.Push(number);
  return Readiness::kReady;
}

}  // namespace xpud::kernels
