#include "kernels/families/map_planner.h"

#include <bit>
#include <cmath>

#include "kernels/families/box_emission.h"
#include "kernels/families/immediate.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

using ops::DType;

// Rough cost of a node in a vectorised f32 loop.
float CostOf(const Node& node) {
  switch (node.op) {
    case Op::kVariable:
    case Op::kInteger:
    case Op::kReal:
      return 0;
    case Op::kSin:
    case Op::kCos:
    case Op::kTan:
      return 2;
    case Op::kPow:
    case Op::kRand:
    case Op::kAtan2:
      return 3;
    case Op::kFmod:
    case Op::kRemainder:
    case Op::kFloordiv:
    case Op::kTruncdiv:
    case Op::kRandn:
    case Op::kErfinv:
      return 8;
    default:
      return node.op >= Op::kExp && node.op <= Op::kSigmoid ? 0.4f : 0.04f;
  }
}

// From this cost on, a GPU's lane computes one element.
constexpr float kCostly = 2;

// A copy moves bits: the unsigned integer of the same size stands for any type.
DType BitsOf(DType type) {
  constexpr DType kBySize[] = {DType::kUInt8, DType::kUInt8, DType::kInt16, DType::kInt16, DType::kInt32};
  return ops::SizeOf(type) == 8 ? DType::kInt64 : kBySize[ops::SizeOf(type)];
}

int VariantOf(const OpCall& call) {
  if (call.row->number != 15 || !call.inputs[1].immediate) return kAsWritten;
  const double power = call.inputs[1].number.AsReal();
  if (power == 2) return kSquare;
  if (power == 3) return kCube;
  if (!ops::IsFloating(call.compute)) return kAsWritten;
  return power == -1 ? kReciprocal : kAsWritten;
}

}  // namespace

absl::StatusOr<const MapPlanner::Traits*> MapPlanner::TraitsOf(const ops::Row& row) {
  if (traits_.size() <= row.number) traits_.resize(row.number + 1u);
  Traits& traits = traits_[row.number];
  if (traits.known) [[likely]]
    return &traits;
  ASSIGN_OR_RETURN(const MapFormula formula, ParseMap(row.formula));
  traits.known = true;
  traits.uses_index = formula.expression.Uses(Variable::kIndex) || formula.expression.UsesRandom();
  traits.seeds = SeedInputs(formula.expression);
  for (size_t id = 0; id < formula.expression.size(); ++id) {
    traits.random_integers |= formula.expression[static_cast<NodeId>(id)].op == Op::kRandint;
    traits.nanoseconds += CostOf(formula.expression[static_cast<NodeId>(id)]);
  }
  return &traits;
}

void MapPlanner::ChooseTypes(const OpCall& call, const Traits& traits, MapKey& key) const {
  key.compute = call.compute;
  if (call.row->types != ops::TypeRule::kAny) return;
  const size_t outputs = call.outputs.size();
  if (call.row->formula == "a") {
    // A conversion goes straight to the output's type; none at all is a move of bits.
    key.compute = key.dtypes[0];
    if (key.access[outputs] == Access::kImmediate || key.dtypes[0] != key.dtypes[outputs]) return;
    key.compute = key.dtypes[0] = key.dtypes[outputs] = BitsOf(key.dtypes[0]);
  } else if (traits.random_integers) {
    key.compute = DType::kInt64;
  } else if (traits.seeds != 0) {
    if (!ops::IsFloating(key.compute)) key.compute = DType::kFloat32;
  } else if (traits.uses_index) {
    // Positions beyond 2^24 are not exact in f32.
    key.compute = ops::IsFloating(key.compute) ? DType::kFloat64 : DType::kInt64;
  }
}

void MapPlanner::PushArguments(const OpCall& call, const MapKey& key, uint32_t seeds, Launch& launch) const {
  for (const Operand& output : call.outputs) launch.Push(output.data);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].immediate) {
      launch.Push(call.inputs[i].data);
    } else {
      PushImmediate(call.inputs[i].number, (seeds >> i & 1) != 0 ? DType::kInt64 : key.compute, launch);
    }
  }
}

absl::StatusOr<Readiness> MapPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  ASSIGN_OR_RETURN(const Traits* const traits, TraitsOf(*call.row));
  Layout layout = Layout::Over(call.outputs[0]);
  for (const Operand& output : call.outputs) layout.AddOperand(output);
  for (const Operand& input : call.inputs) layout.AddOperand(input);
  if (layout.numel() == 0) return Readiness::kReady;
  layout.Collapse(/*may_permute=*/!traits->uses_index);

  MapKey key;
  key.row = call.row;
  key.variant = VariantOf(call);
  key.rank = layout.rank;
  key.operands = layout.operands;
  const bool gpu = cache_.target() != Target::kHost;
  key.narrow = gpu && layout.Fits32();
  float bytes = 0;
  float nanoseconds = traits->nanoseconds;
  std::array<BoxOperand, kMaxOperands> operands;
  for (int o = 0; o < layout.operands; ++o) {
    const size_t at = static_cast<size_t>(o);
    const Operand& operand =
        at < call.outputs.size() ? call.outputs[at] : call.inputs[at - call.outputs.size()];
    key.dtypes[at] = operand.dtype;
    key.access[at] = operand.immediate ? Access::kImmediate : layout.AccessOf(o);
    operands[at] = {key.access[at], operand.dtype, operand.data};
    if (key.access[at] == Access::kContiguous) bytes += static_cast<float>(ops::SizeOf(operand.dtype));
    if (key.access[at] == Access::kStrided) nanoseconds += 0.5f;
    // Transposed: contiguous along the rows, while the output is contiguous along the columns.
    key.tiled |=
        key.access[at] == Access::kStrided && layout.rank >= 2 && layout.stride(o, layout.rank - 2) == 1;
  }
  const std::span<const BoxOperand> boxed(operands.data(), static_cast<size_t>(layout.operands));
  if (gpu) {
    key.tiled = key.tiled && FitsTiles(layout, boxed);
    // Costly functions are bound by arithmetic, and would be emitted once for each element of a block.
    if (!key.tiled && cache_.target() == Target::kNvptx && traits->nanoseconds < kCostly)
      key.block_log2 = std::countr_zero(static_cast<unsigned>(BlockOf(layout, boxed)));
  }
  key.tiled &= !traits->uses_index;
  ChooseTypes(call, *traits, key);
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
  if (kernel == nullptr) return Readiness::kCompiling;

  Launch& launch = launches.Add();
  launch.Reset(kernel, 1);
  PushArguments(call, key, traits->seeds, launch);
  PushBox(cache_.target(), layout, boxed, {key.tiled, 1 << key.block_log2},
          nanoseconds + bytes / kBytesPerNanosecond + 0.02f, launch);
  return Readiness::kReady;
}

}  // namespace xpud::kernels
