#include "kernels/families/foreach.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernels/families/line_emission.h"
#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/foreach.h"

namespace xpud::kernels {

// ---- planning

void ForeachPlanner::SetElement(const ops::OperandLists& lists, size_t index) {
  Element& element = element_;
  const Operand& out = lists.At(0, index);
  const size_t inputs = element.call.row->inputs;
  element.call.outputs = {&out, 1};
  element.call.inputs = {element.inputs.data(), inputs};
  for (size_t i = 0; i < inputs; ++i) element.inputs[i] = lists.InputAt(i + 1, index);
  Layout layout = Layout::Over(out);
  layout.AddOperand(out);
  for (const Operand& input : element.call.inputs) layout.AddOperand(input);
  element.count = layout.numel();
  if (element.count == 0) return;
  layout.Collapse(/*may_permute=*/true);
  element.is_line = layout.rank == 1 && layout.AccessOf(0) == Access::kContiguous;
  for (size_t o = 0; o <= inputs; ++o) {
    const bool immediate = o > 0 && element.inputs[o - 1].immediate;
    const bool shared_element = o > 0 && lists.IsShared(o) && element.inputs[o - 1].numel() == 1;
    element.access[o] = immediate        ? Access::kImmediate
                        : shared_element ? Access::kBroadcast
                                         : layout.AccessOf(static_cast<int>(o));
    element.is_line &= element.access[o] != Access::kStrided;
  }
}

absl::StatusOr<Readiness> ForeachPlanner::Plan(const OpCall& call, Workspace workspace,
                                               LaunchList& launches) {
  const ops::OperandLists lists(call);
  element_.call = {};
  element_.call.row = ops::FindRow(static_cast<uint16_t>(ops::Read<ops::ForeachCall>(call).row));
  element_.call.compute = call.compute;
  element_.call.error_word = call.error_word;
  readiness_ = Readiness::kReady;
  tensors_ = 0;
  for (size_t i = 0; i < lists.size(); ++i) {
    SetElement(lists, i);
    if (element_.count > 0) RETURN_IF_ERROR(Add(lists, i, workspace, launches));
  }
  RETURN_IF_ERROR(Flush(launches));
  return readiness_;
}

ForeachKey ForeachPlanner::KeyOf(const ops::OperandLists& lists, const MapPlanner::Line& line) const {
  const OpCall& call = element_.call;
  ForeachKey key;
  key.map = line.key;
  key.small = lists.size() <= static_cast<size_t>(kSmallPack);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool in_place =
        key.AccessOf(i) == Access::kContiguous && call.inputs[i].data == call.outputs[0].data;
    key.shared |= (lists.IsShared(i + 1) ? 1u : 0u) << i;
    key.in_place |= (in_place ? 1u : 0u) << i;
  }
  return key;
}

absl::Status ForeachPlanner::Add(const ops::OperandLists& lists, size_t index, Workspace workspace,
                                 LaunchList& launches) {
  const OpCall& call = element_.call;
  if (tensors_ > 0 && !ranges_.Fits(call.outputs, call.inputs)) RETURN_IF_ERROR(Flush(launches));
  if (element_.is_line && lists.size() > 1) {
    const std::span<const Access> access(element_.access.data(), call.inputs.size() + 1);
    ASSIGN_OR_RETURN(const MapPlanner::Line line, maps_.LineOf(call, access));
    const ForeachKey key = KeyOf(lists, line);
    // An operand for all tensors is a number, or one element.
    bool joins = !line.ordered;
    for (size_t i = 0; i < call.inputs.size(); ++i)
      joins &= !key.IsShared(i) || key.AccessOf(i) != Access::kContiguous;
    if (joins) return Join(lists, index, line, key, launches);
  }
  ASSIGN_OR_RETURN(const Readiness ready, maps_.Plan(call, workspace, launches));
  if (ready == Readiness::kCompiling) readiness_ = ready;
  return absl::OkStatus();
}

absl::Status ForeachPlanner::Join(const ops::OperandLists& lists, size_t index, const MapPlanner::Line& line,
                                  const ForeachKey& key, LaunchList& launches) {
  if (tensors_ > 0 && (!(key == key_) || tensors_ == key_.capacity())) RETURN_IF_ERROR(Flush(launches));
  if (tensors_ == 0) {
    key_ = key;
    costly_ = line.costly;
    nanoseconds_ = line.nanoseconds;
  }
  const OpCall& call = element_.call;
  const auto t = static_cast<size_t>(tensors_++);
  size_t slot = 0;
  const auto put = [&](const Operand& operand, Access access) {
    arguments_.pack.pointers[slot++][t] = operand.data;
    if (access == Access::kContiguous) addresses_ |= reinterpret_cast<uintptr_t>(operand.data);
  };
  put(call.outputs[0], Access::kContiguous);
  for (size_t i = 0; i < key.inputs(); ++i) {
    const Operand& input = lists.At(i + 1, index);
    if (key.HasSlot(i)) put(input, key.AccessOf(i));
    arguments_.numbers[i][t] = &input.number;
    arguments_.shared[i] = input.data;
    arguments_.shared_numbers[i] = &input.number;
  }
  arguments_.pack.counts[t] = element_.count;
  elements_ += element_.count;
  units_ += CeilDiv(element_.count, UnitOf(cache_.target()));
  ranges_.Add(call.outputs, call.inputs);
  return absl::OkStatus();
}

// A GPU's lane moves blocks of kBlockBytes if all addresses allow it.
int ForeachPlanner::BlockOf() const {
  if (cache_.target() != Target::kNvptx || costly_ || addresses_ % kBlockBytes != 0) return 1;
  int block = 8;
  for (size_t o = 0; o <= key_.inputs(); ++o) {
    if (key_.map.access[o] == Access::kContiguous)
      block = std::min(block, kBlockBytes / static_cast<int>(ops::SizeOf(key_.map.dtypes[o])));
  }
  return block;
}

absl::Status ForeachPlanner::Flush(LaunchList& launches) {
  if (tensors_ == 0) return absl::OkStatus();
  const int tensors = std::exchange(tensors_, 0);
  const int64_t elements = std::exchange(elements_, 0), units = std::exchange(units_, 0);
  key_.map.block_log2 = std::countr_zero(static_cast<unsigned>(BlockOf()));
  addresses_ = 0;
  ranges_.Clear();
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key_));
  if (kernel == nullptr) {
    readiness_ = Readiness::kCompiling;
    return absl::OkStatus();
  }
  for (size_t i = 0; i < key_.inputs(); ++i)
    if (key_.HasNumbers(i))
      std::fill(arguments_.numbers[i].begin() + tensors, arguments_.numbers[i].end(),
                arguments_.numbers[i][0]);
  Launch& launch = launches.Add();
  launch.Reset(kernel, 1);
  FinishPack({.target = cache_.target(),
              .tensors = tensors,
              .slots = key_.slots(),
              .elements = elements,
              .units = units,
              .unit = UnitOf(cache_.target()),
              .nanoseconds = nanoseconds_},
             arguments_.pack, launch);
  PushArguments(key_, arguments_, launch);
  return absl::OkStatus();
}

// ---- emission

namespace {

class ForeachEmission : public LineEmission {
 public:
  ForeachEmission(const ForeachKey& key, const ForeachArguments<Emitted>& arguments,
                  const MapFormula& formula, Emitter& emitter)
      : LineEmission(emitter, StreamsOf(key), ScalarOf(key.map.compute), 1 << key.map.block_log2),
        key_(key),
        args_(arguments),
        formula_(formula),
        compute_(ScalarOf(key.map.compute)) {}

  absl::Status Run() {
    PackEmission pack(e_, args_.pack, key_.slots(), key_.capacity());
    for (size_t i = 0; i < key_.inputs(); ++i)
      if (key_.HasNumbers(i)) pack.AddSlot(args_.numbers[i]);
    EmitLines(pack);
    return status_;
  }

 private:
  static std::vector<Stream> StreamsOf(const ForeachKey& key) {
    std::vector<Stream> streams;
    size_t slot = 1;
    for (size_t i = 0; i < key.inputs(); ++i) {
      const size_t at = key.HasSlot(i) ? slot++ : 0;
      if (key.AccessOf(i) == Access::kContiguous)
        streams.push_back({.slot = at, .dtype = key.map.dtypes[i + 1], .load = true});
    }
    streams.push_back({.slot = 0, .dtype = key.map.dtypes[0], .store = true});
    return streams;
  }

  // Sets the inputs that are the same for all elements of the slice.
  void Begin(const PackEmission::Slice& slice) override {
    size_t slot = 1, number = static_cast<size_t>(key_.slots());
    constants_.assign(key_.inputs(), nullptr);
    for (size_t i = 0; i < key_.inputs(); ++i) {
      Value const own = key_.HasSlot(i) ? slice.slots[slot++] : nullptr;
      if (key_.IsImmediate(i)) {
        Value const value = key_.IsShared(i) ? args_.shared_numbers[i].value : slice.slots[number++];
        constants_[i] = e_.Convert(value, IsFloat(compute_) ? compute_ : Scalar::kI64, compute_);
      } else if (key_.AccessOf(i) == Access::kBroadcast) {
        Value const address = key_.IsShared(i) ? args_.shared[i].value : own;
        constants_[i] = e_.Load(key_.map.dtypes[i + 1], address, e_.I64(0), compute_);
      }
    }
  }

  std::vector<Typed> Element(const Values& loaded) override {
    Lowering::Bindings bindings{};
    size_t next = 0;
    for (size_t i = 0; i < key_.inputs(); ++i)
      bindings[i] = {constants_[i] != nullptr ? constants_[i] : loaded[next++], compute_};
    Lowering lowering(e_, formula_.expression, compute_, bindings, 1, key_.map.dtypes[0]);
    const absl::StatusOr<Typed> result = lowering.Lower(formula_.outputs[0]);
    if (result.ok()) return {*result};
    status_ = result.status();
    return {};
  }

  const ForeachKey& key_;
  const ForeachArguments<Emitted>& args_;
  const MapFormula& formula_;
  const Scalar compute_;
  Values constants_;
  absl::Status status_;
};

}  // namespace

absl::Status ForeachSkeleton::EmitBody(const ForeachKey& key, const ForeachArguments<Emitted>& arguments,
                                       Emitter& e) const {
  ASSIGN_OR_RETURN(const MapFormula formula, ParseMap(Formula(key)));
  return ForeachEmission(key, arguments, formula, e).Run();
}

constinit const PlannerFactory kForeachPlanner = MakePlanner<ForeachPlanner>;

}  // namespace xpud::kernels
