#include "kernels/families/softmax_planner.h"

#include <algorithm>

#include "kernels/families/layout.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

// Exponentials of one row in scratch: half of what a kernel may use.
constexpr int64_t kLargestStagedRow = int64_t{2} << 20 >> 2;

constexpr int64_t kWantedGroups = 256;  // to fill a GPU

}  // namespace

void SoftmaxPlanner::ChooseLanes(const OpCall& call, const Layout& kept, int64_t n, SoftmaxKey& key) const {
  if (key.columns) {
    // 32 columns are a cache line of f32; fewer where that gives too few groups.
    const int64_t outer = kept.numel() / kept.inner();
    int log2 = 5;
    while (log2 > 3 && outer * CeilDiv(kept.inner(), int64_t{1} << log2) < kWantedGroups) --log2;
    key.column_lanes_log2 = log2;
    return;
  }
  if (!key.contiguous || cache_.target() != Target::kNvptx) return;
  // A row starts at a multiple of all the kept strides together.
  int64_t strides = 0;
  for (int o = 0; o < kept.operands; ++o) {
    for (int d = 0; d < kept.rank && kept.numel() > 1; ++d) strides |= kept.stride(o, d);
  }
  const Operand& last = call.inputs.back();
  const int block = RowBlock(n, {&call.outputs[0], &call.inputs[0], &last}, {strides});
  key.rows = PlanRows(kept.numel(), n, block, kept.operands - 1);
}

absl::StatusOr<Readiness> SoftmaxPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const Operand& out = call.outputs[0];
  const bool gpu = cache_.target() != Target::kHost;
  const size_t dim = static_cast<size_t>(call.attributes[0].AsInteger());
  const int64_t n = out.rank == 0 ? 1 : out.sizes[dim];
  Operand shape = out;
  if (out.rank > 0) shape.sizes[dim] = 1;
  Layout kept = Layout::Over(shape);
  kept.AddOperand(out);
  for (const Operand& input : call.inputs) kept.AddOperand(input);
  if (kept.numel() == 0 || n == 0) return Readiness::kReady;
  kept.Collapse(/*may_permute=*/true);

  // The rows' names in the table, by number.
  SoftmaxKey key;
  key.logarithm = call.row->number == 181 || call.row->number == 183;
  key.backward = call.row->inputs == 2;
  key.kept = kept.rank;
  key.out = out.dtype;
  key.input = call.inputs[0].dtype;
  key.contiguous = true;
  bool kept_contiguous = kept.inner() > 1;
  for (int o = 0; o < kept.operands; ++o) {
    const Operand& operand = o == 0 ? out : call.inputs[static_cast<size_t>(o - 1)];
    key.contiguous &= n == 1 || operand.strides[dim] == 1;
    kept_contiguous &= kept.AccessOf(o) == Access::kContiguous;
  }
  key.columns = !key.contiguous && kept_contiguous;
  const int64_t items = kept.numel();
  if (gpu) ChooseLanes(call, kept, n, key);
  key.staged = !key.columns && !key.backward && !key.logarithm && !gpu && n <= kLargestStagedRow;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
  if (kernel == nullptr) return Readiness::kCompiling;

  const float element =
      0.5f + static_cast<float>(ops::SizeOf(out.dtype)) / 4 + (key.contiguous || key.columns ? 0.0f : 4.0f);
  Launch& launch = launches.Add();
  int64_t slice = 1;
  if (key.columns) {
    slice =
        gpu ? int64_t{1} << key.column_lanes_log2 : SliceOf(kept.inner(), element * static_cast<float>(n));
    const int64_t outer = items / kept.inner();
    launch.Reset(kernel, static_cast<uint32_t>(outer * CeilDiv(kept.inner(), slice)));
  } else {
    slice = gpu ? 1 : SliceOf(items, element * static_cast<float>(n), 1);
    launch.Reset(kernel, static_cast<uint32_t>(CeilDiv(items, gpu ? key.rows.rows_a_group() : slice)));
  }
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  launch.Push(out.data);
  for (const Operand& input : call.inputs) launch.Push(input.data);
  for (int d = 0; d < kept.rank; ++d) launch.Push(kept.sizes[static_cast<size_t>(d)]);
  for (int o = 0; o < kept.operands; ++o) {
    for (int d = 0; d < kept.rank; ++d) launch.Push(kept.stride(o, d));
  }
  launch.Push(n);
  launch.Push(out.rank == 0 ? int64_t{1} : out.strides[dim]);
  for (const Operand& input : call.inputs) launch.Push(out.rank == 0 ? int64_t{1} : input.strides[dim]);
  launch.Push(items);
  launch.Push(slice);
  return Readiness::kReady;
}

}  // namespace xpud::kernels
