#include "kernels/families/layer_norm_planner.h"

#include "kernels/families/immediate.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

void SetOperand(LayerNormKey& key, size_t at, const Operand& operand) {
  key.present[at] = operand.present;
  key.dtypes[at] = operand.present ? operand.dtype : ops::DType::kFloat32;
}

void PushPointer(const Operand& operand, Launch& launch) {
  if (operand.present) launch.Push(operand.data);
}

}  // namespace

absl::StatusOr<Readiness> LayerNormPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const Operand& x = call.inputs[0];
  const int64_t m = x.sizes[0], n = x.sizes[1];
  if (m == 0) return Readiness::kReady;
  LayerNormKey key;
  for (size_t o = 0; o < 3; ++o) SetOperand(key, o, call.outputs[o]);
  for (size_t i = 0; i < 3; ++i) SetOperand(key, 3 + i, call.inputs[i]);
  const bool gpu = cache_.target() != Target::kHost;
  if (cache_.target() == Target::kNvptx && n > 0) {
    const auto operand = [&](size_t i) { return call.inputs[i].present ? &call.inputs[i] : &x; };
    key.rows = PlanRows(m, n, RowBlock(n, {&call.outputs[0], &x, operand(1), operand(2)}, {}), 1);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
  if (kernel == nullptr) return Readiness::kCompiling;
  const int64_t slice = gpu ? 1 : SliceOf(m, 0.3f * static_cast<float>(n) + 10, 1);
  Launch& launch = launches.Add();
  launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(m, gpu ? key.rows.rows_a_group() : slice)));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  for (const Operand& output : call.outputs) launch.Push(output.data);
  for (const Operand& input : call.inputs) PushPointer(input, launch);
  for (const int64_t scalar : {n, m, slice}) launch.Push(scalar);
  PushImmediate(call.attributes[0], x.dtype, launch);
  return Readiness::kReady;
}

}  // namespace xpud::kernels
