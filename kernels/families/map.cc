#include "kernels/families/map.h"

#include <bit>
#include <cmath>

#include "kernels/compiler/lowering.h"
#include "kernels/families/op_cost.h"
#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

using ops::DType;

// From this cost on, a GPU's lane computes only one element.
constexpr float kCostly = 2;

// A copy moves bits: the integer of the same size represents any type.
DType BitsOf(DType type) {
  constexpr DType kBySize[] = {DType::kUInt8, DType::kUInt8, DType::kInt16, DType::kInt16, DType::kInt32};
  return ops::SizeOf(type) == 8 ? DType::kInt64 : kBySize[ops::SizeOf(type)];
}

int VariantOf(const OpCall& call) {
  if (call.row->formula != "pow(a, b)" || !call.inputs[1].immediate) return kAsWritten;
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
    traits.nanoseconds += NanosecondsOf(formula.expression[static_cast<NodeId>(id)].op);
  }
  return &traits;
}

void MapPlanner::ChooseTypes(const OpCall& call, const Traits& traits, MapKey& key) const {
  ChooseCompute(call, traits, key);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].immediate)
      key.dtypes[call.outputs.size() + i] = (traits.seeds >> i & 1) != 0 ? DType::kInt64 : key.compute;
  }
}

void MapPlanner::ChooseCompute(const OpCall& call, const Traits& traits, MapKey& key) const {
  key.compute = call.compute;
  if (call.row->types != ops::TypeRule::kAny) return;
  const size_t outputs = call.outputs.size();
  if (call.row->formula == "a") {
    // A conversion computes in the output's type. Without conversion, only bits are moved.
    key.compute = key.dtypes[0];
    if (key.access[outputs] == Access::kImmediate || key.dtypes[0] != key.dtypes[outputs]) return;
    key.compute = key.dtypes[0] = key.dtypes[outputs] = BitsOf(key.dtypes[0]);
  } else if (traits.random_integers) {
    key.compute = DType::kInt64;
  } else if (traits.seeds != 0) {
    if (!ops::IsFloating(key.compute)) key.compute = DType::kFloat32;
  } else if (traits.uses_index) {
    // f32 cannot represent all positions beyond 2^24.
    key.compute = ops::IsFloating(key.compute) ? DType::kFloat64 : DType::kInt64;
  }
}

absl::StatusOr<MapPlanner::Line> MapPlanner::LineOf(const OpCall& call, std::span<const Access> access) {
  ASSIGN_OR_RETURN(const Traits* const traits, TraitsOf(*call.row));
  Line line;
  line.ordered = traits->uses_index;
  line.costly = traits->nanoseconds >= kCostly;
  line.key.row = call.row;
  line.key.variant = VariantOf(call);
  line.key.operands = static_cast<int>(access.size());
  float bytes = 0;
  for (size_t o = 0; o < access.size(); ++o) {
    const Operand& operand = o < call.outputs.size() ? call.outputs[o] : call.inputs[o - call.outputs.size()];
    line.key.dtypes[o] = operand.dtype;
    line.key.access[o] = access[o];
    if (access[o] == Access::kContiguous) bytes += static_cast<float>(ops::SizeOf(operand.dtype));
  }
  line.nanoseconds = traits->nanoseconds + bytes / kBytesPerNanosecond + 0.02f;
  ChooseTypes(call, *traits, line.key);
  return line;
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
  MapArguments<Planned> arguments;
  for (int o = 0; o < layout.operands; ++o) {
    const size_t at = static_cast<size_t>(o);
    const Operand& operand =
        at < call.outputs.size() ? call.outputs[at] : call.inputs[at - call.outputs.size()];
    key.dtypes[at] = operand.dtype;
    key.access[at] = operand.immediate ? Access::kImmediate : layout.AccessOf(o);
    operands[at] = {key.access[at], operand.dtype, operand.data};
    arguments.pointers[at] = operand.data;
    arguments.immediates[at] = &operand.number;
    if (key.access[at] == Access::kContiguous) bytes += static_cast<float>(ops::SizeOf(operand.dtype));
    if (key.access[at] == Access::kStrided) nanoseconds += 0.5f;
    // Transposed: contiguous along the rows, while the output is contiguous along the columns.
    key.tiled |=
        key.access[at] == Access::kStrided && layout.rank >= 2 && layout.stride(o, layout.rank - 2) == 1;
  }
  const std::span<const BoxOperand> boxed(operands.data(), static_cast<size_t>(layout.operands));
  if (gpu) {
    key.tiled = key.tiled && FitsTiles(layout, boxed);
    // Costly functions are limited by arithmetic, and would be emitted once for each element of a block.
    if (!key.tiled && cache_.target() == Target::kNvptx && traits->nanoseconds < kCostly)
      key.block_log2 = std::countr_zero(static_cast<unsigned>(BlockOf(layout, boxed)));
  }
  key.tiled &= !traits->uses_index;
  ChooseTypes(call, *traits, key);
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  Launch& launch = launches.Add();
  launch.Reset(kernel, 1);
  PlanBox(cache_.target(), layout, boxed, {key.tiled, 1 << key.block_log2},
          nanoseconds + bytes / kBytesPerNanosecond + 0.02f, arguments.box, launch);
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

std::string_view MapFormulaText(const ops::Row& row, int variant) {
  constexpr std::string_view kCheaper[] = {"", "a * a", "a * a * a", "sqrt(a)", "1 / a"};
  return variant == kAsWritten ? row.formula : kCheaper[variant];
}

uint32_t SeedInputs(const Expression& expression) {
  uint32_t seeds = 0;
  for (size_t id = 0; id < expression.size(); ++id) {
    const Node& node = expression[static_cast<NodeId>(id)];
    if (node.op < Op::kRand) continue;
    for (int i = node.arity - 2; i < node.arity; ++i) {
      const Node& operand = expression[node.operands[static_cast<size_t>(i)]];
      if (operand.op == Op::kVariable) seeds |= 1u << static_cast<unsigned>(operand.variable);
    }
  }
  return seeds;
}

namespace {

// Emits one map kernel.
class MapEmission : public BoxEmission {
 public:
  MapEmission(const MapKey& key, const MapArguments<Emitted>& arguments, const MapFormula& formula,
              Emitter& emitter)
      : BoxEmission(emitter, arguments.box,
                    {.rank = key.rank,
                     .tiled = key.tiled,
                     .narrow = key.narrow,
                     .block = 1 << key.block_log2,
                     .access = key.accesses(),
                     .dtypes = key.dtypes,
                     .pointers = arguments.pointers}),
        key_(key),
        args_(arguments),
        formula_(formula),
        outputs_(static_cast<int>(formula.outputs.size())),
        seeds_(SeedInputs(formula.expression)) {}

  absl::Status Run() {
    EmitLoops();
    return status_;
  }

 private:
  Scalar ScalarOfInput(int operand) const {
    const bool seed = operand >= outputs_ && (seeds_ >> (operand - outputs_) & 1) != 0;
    return seed ? Scalar::kI64 : ScalarOf(key_.compute);
  }

  Value EmitElement(const Values& offsets, Value index) override {
    Values inputs;
    for (int o = outputs_; o < operands(); ++o) inputs.push_back(Input(o, ScalarOfInput(o), offsets));
    const std::vector<Typed> results = Compute(inputs, index);
    for (size_t o = 0; o < results.size(); ++o) {
      e_.Store(key_.dtypes[o], args_.pointers[o], offsets[o], results[o].value, results[o].scalar);
    }
    return nullptr;
  }

  // All loads precede the first store, which may be in place.
  Value EmitBlock(const Values& offsets, Value index, int block) override {
    std::vector<Values> inputs(static_cast<size_t>(block));
    for (int o = outputs_; o < operands(); ++o) {
      const auto at = static_cast<size_t>(o);
      Values values;
      if (AccessOf(o) == Access::kContiguous) {
        values = e_.LoadBlock(key_.dtypes[at], args_.pointers[at], offsets[at], ScalarOfInput(o), block);
      } else {
        values.assign(inputs.size(), Input(o, ScalarOfInput(o), offsets));
      }
      for (size_t e = 0; e < inputs.size(); ++e) inputs[e].push_back(values[e]);
    }
    std::vector<std::vector<Typed>> results;
    for (size_t e = 0; e < inputs.size(); ++e)
      results.push_back(Compute(inputs[e], e_.Add(index, e_.I64(static_cast<int64_t>(e)))));
    for (size_t o = 0; o < results[0].size(); ++o) {
      Values values;
      for (const std::vector<Typed>& element : results) values.push_back(element[o].value);
      e_.StoreBlock(key_.dtypes[o], args_.pointers[o], offsets[o], values, results[0][o].scalar);
    }
    return nullptr;
  }

  // Returns the outputs for one element, or nothing after an error.
  std::vector<Typed> Compute(const Values& inputs, Value index) {
    Lowering::Bindings bindings{};
    bindings[static_cast<size_t>(Variable::kIndex)] = {index, Scalar::kI64};
    for (size_t i = 0; i < inputs.size(); ++i)
      bindings[i] = {inputs[i], ScalarOfInput(outputs_ + static_cast<int>(i))};
    Lowering lowering(e_, formula_.expression, ScalarOf(key_.compute), bindings, 1, key_.dtypes[0]);
    std::vector<Typed> results;
    for (const NodeId root : formula_.outputs) {
      const absl::StatusOr<Typed> result = lowering.Lower(root);
      if (!result.ok()) {
        status_ = result.status();
        return {};
      }
      results.push_back(*result);
    }
    return results;
  }

  Value Input(int operand, Scalar scalar, const Values& offsets) {
    const size_t at = static_cast<size_t>(operand);
    if (Staged(operand) != nullptr) return e_.FromStorage(key_.dtypes[at], Staged(operand), scalar);
    if (InMemory(operand)) return e_.Load(key_.dtypes[at], args_.pointers[at], offsets[at], scalar);
    return e_.Convert(args_.immediates[at], IsFloat(scalar) ? scalar : Scalar::kI64, scalar);
  }

  const MapKey& key_;
  const MapArguments<Emitted>& args_;
  const MapFormula& formula_;
  const int outputs_;
  const uint32_t seeds_;
  absl::Status status_;
};

}  // namespace

absl::Status MapSkeleton::EmitBody(const MapKey& key, const MapArguments<Emitted>& arguments,
                                   Emitter& e) const {
  ASSIGN_OR_RETURN(const MapFormula formula, ParseMap(Formula(key)));
  return MapEmission(key, arguments, formula, e).Run();
}

constinit const PlannerFactory kMapPlanner = MakePlanner<MapPlanner>;

}  // namespace xpud::kernels
