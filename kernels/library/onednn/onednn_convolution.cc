#include "kernels/library/onednn/onednn_convolution.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/library/host_modules.h"
#include "kernels/library/onednn/primitive.h"
#include "kernels/library/planners.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

std::unique_ptr<Planner> CreateOnednnConvolution(KernelStore& store, Planner& maps, Planner& own,
                                                 int workers) {
  return std::make_unique<onednn::OnednnConvolution>(store, maps, own, workers);
}

namespace onednn {
namespace {

constexpr double kGroupNanoseconds = 30e3;  // less work than this is one group
constexpr int64_t kGroupsPerWorker = 4;
constexpr double kLongNanoseconds =
    1e9;  // more work than this is a part in each group: others get their turn between groups

// The dimensions of a list in the problem: a single spatial dimension is the second of two.
void SetList(ConvolutionProblem::List& to, const int64_t* from, int spatial, int64_t other) {
  to.fill(0);
  if (spatial == 1) {
    to[0] = other;
    to[1] = from[0];
  } else {
    std::copy(from, from + spatial, to.begin());
  }
}

ConvolutionProblem ProblemOf(const OpCall& call, const ops::Convolution& c) {
  ConvolutionProblem p;
  p.batch = c.batch();
  p.groups = c.groups;
  p.input_channels = c.input_channels();
  p.output_channels = c.output_channels();
  p.spatial = std::max(c.spatial, 2);
  SetList(p.input, c.input->sizes.data() + 2, c.spatial, 1);
  SetList(p.output, c.output->sizes.data() + 2, c.spatial, 1);
  SetList(p.kernel, c.weight->sizes.data() + 2, c.spatial, 1);
  SetList(p.stride, c.stride.data(), c.spatial, 1);
  SetList(p.padding, c.padding.data(), c.spatial, 0);
  SetList(p.dilation, c.dilation.data(), c.spatial, 1);
  p.direction = call.row->family;
  const ops::DType type = call.outputs[0].dtype;
  p.type = MultipliesNatively(type) ? type : ops::DType::kFloat32;
  p.bias = c.bias != nullptr && p.direction == ops::Family::kConvolution;
  return p;
}

WeightView ViewOf(const Operand& weight) {
  WeightView view;
  view.data = static_cast<std::byte*>(weight.data);
  view.type = weight.dtype;
  view.strides[0] = weight.strides[0];
  view.strides[1] = weight.strides[1];
  if (weight.rank == 3) {
    view.strides[3] = weight.strides[2];
  } else {
    std::copy(weight.strides.begin() + 2, weight.strides.begin() + weight.rank, view.strides.begin() + 2);
  }
  return view;
}

// The operand as a tensor without gaps at `data`, its channels innermost.
Operand ChannelsLast(const Operand& like, ops::DType type, void* data) {
  Operand operand = like;
  operand.dtype = type;
  operand.data = data;
  operand.content = 0;
  int64_t next = like.sizes[1];
  operand.strides[1] = 1;
  for (int d = like.rank - 1; d >= 0; --d) {
    if (d == 1) continue;
    operand.strides[static_cast<size_t>(d)] = next;
    next *= like.sizes[static_cast<size_t>(d)];
  }
  return operand;
}

bool IsChannelsLast(const Operand& operand, ops::DType type) {
  const Operand wanted = ChannelsLast(operand, type, operand.data);
  bool same = operand.dtype == type;
  for (int d = 0; d < operand.rank; ++d) {
    const auto at = static_cast<size_t>(d);
    same &= operand.sizes[at] == 1 || operand.strides[at] == wanted.strides[at];
  }
  return same;
}

// Returns false if elements at different indices share memory, except by strides of 0: oneDNN refuses such a
// tensor.
bool IsDistinct(const Operand& operand) {
  std::vector<std::pair<int64_t, int64_t>> dimensions;  // stride, size
  for (size_t d = 0; d < operand.rank; ++d)
    if (operand.sizes[d] > 1 && operand.strides[d] > 0)
      dimensions.emplace_back(operand.strides[d], operand.sizes[d]);
  std::ranges::sort(dimensions);
  for (size_t i = 1; i < dimensions.size(); ++i)
    if (dimensions[i].first / dimensions[i - 1].second < dimensions[i - 1].first) return false;
  return true;
}

}  // namespace

class OnednnConvolution::Way {
 public:
  Way(OnednnConvolution& planner, const OpCall& call, const ops::Convolution& c, Workspace workspace,
      LaunchList& launches)
      : planner_(planner),
        call_(call),
        c_(c),
        workspace_(workspace),
        launches_(launches),
        problem_(ProblemOf(call, c)) {}

  const ConvolutionProblem& problem() const { return problem_; }
  absl::StatusOr<Readiness> Plan(const ConvolutionPlan& plan);

 private:
  // Returns the operand's values as a tensor that oneDNN reads.
  absl::StatusOr<std::byte*> Read(const Operand& operand) {
    if (IsChannelsLast(operand, problem_.type)) return static_cast<std::byte*>(operand.data);
    ASSIGN_OR_RETURN(const Operand made, Make(operand));
    RETURN_IF_ERROR(Map(ops::RowOf("_copy_from"), made, {&operand, 1}));
    return static_cast<std::byte*>(made.data);
  }
  absl::StatusOr<Operand> Make(const Operand& like) {
    ASSIGN_OR_RETURN(void* const data,
                     workspace_(static_cast<size_t>(like.numel()) * ops::SizeOf(problem_.type)));
    return ChannelsLast(like, problem_.type, data);
  }
  absl::StatusOr<std::byte*> ReadBias() {
    if (!problem_.bias) return nullptr;
    Operand row = *c_.bias;  // as a tensor with channels
    row.rank = 2;
    row.sizes[1] = row.sizes[0], row.strides[1] = row.strides[0];
    row.sizes[0] = 1, row.strides[0] = 0;
    return Read(row);
  }
  // Maps compile all kernels before anything waits.
  absl::Status Map(const ops::Row& row, const Operand& out, std::span<const Operand> inputs) {
    ASSIGN_OR_RETURN(
        const Readiness ready,
        planner_.maps_.Plan(
            {.row = &row, .compute = out.dtype, .outputs = {&out, 1}, .inputs = inputs, .attributes = {}},
            workspace_, launches_));
    if (ready == Readiness::kCompiling) readiness_ = ready;
    return absl::OkStatus();
  }
  absl::Status WriteOut(const Operand& from);
  absl::StatusOr<std::byte*> PackWeight(const ConvolutionPlan& plan) {
    ASSIGN_OR_RETURN(void* const packed, workspace_(plan.weight_bytes()));
    planner_.kernels_.LaunchPack(problem_, ViewOf(*c_.weight), packed, launches_);
    return static_cast<std::byte*>(packed);
  }
  uint32_t PartsPerGroup(const ConvolutionPlan& plan) const;
  absl::Status PlanTensor(const ConvolutionPlan& plan);
  absl::Status PlanWeight(const ConvolutionPlan& plan);

  OnednnConvolution& planner_;
  const OpCall& call_;
  const ops::Convolution& c_;
  const Workspace workspace_;
  LaunchList& launches_;
  const ConvolutionProblem problem_;
  Readiness readiness_ = Readiness::kReady;
};

uint32_t OnednnConvolution::Way::PartsPerGroup(const ConvolutionPlan& plan) const {
  if (plan.nanoseconds() > kLongNanoseconds) return 1;
  const int64_t most = planner_.workers_ == 1 ? 1 : kGroupsPerWorker * planner_.workers_;
  const int64_t groups =
      std::clamp<int64_t>(static_cast<int64_t>(plan.nanoseconds() / kGroupNanoseconds), 1, most);
  return static_cast<uint32_t>((plan.parts() + groups - 1) / groups);
}

// Converts the result to the call's output, with the bias of a transposed convolution.
absl::Status OnednnConvolution::Way::WriteOut(const Operand& from) {
  const Operand& out = call_.outputs[0];
  if (c_.bias == nullptr || problem_.bias) {
    if (from.data == out.data) return absl::OkStatus();
    return Map(ops::RowOf("_copy_from"), out, {&from, 1});
  }
  Operand bias = out;
  bias.data = c_.bias->data;
  bias.strides.fill(0);
  bias.strides[1] = c_.bias->strides[0];
  Operand one;
  one.immediate = true;
  one.dtype = ops::DType::kInt64;
  one.number = ops::Number::Integer(1);
  const Operand inputs[] = {from, bias, one};
  return Map(ops::RowOf("add.Tensor"), out, inputs);
}

// The convolution itself, or the gradient by its input.
absl::Status OnednnConvolution::Way::PlanTensor(const ConvolutionPlan& plan) {
  const bool forward = problem_.direction == ops::Family::kConvolution;
  const Operand& out = call_.outputs[0];
  ConvolutionOperands operands;
  ASSIGN_OR_RETURN(std::byte* const source, Read(call_.inputs[0]));
  ASSIGN_OR_RETURN(operands.weight, PackWeight(plan));
  ASSIGN_OR_RETURN(operands.bias, ReadBias());
  Operand result = out;
  if (!IsChannelsLast(out, problem_.type)) {
    ASSIGN_OR_RETURN(result, Make(out));
  }
  operands.input = forward ? source : static_cast<std::byte*>(result.data);
  operands.output = forward ? static_cast<std::byte*>(result.data) : source;
  planner_.kernels_.LaunchParts(problem_, plan, operands, PartsPerGroup(plan), launches_);
  return WriteOut(result);
}

absl::Status OnednnConvolution::Way::PlanWeight(const ConvolutionPlan& plan) {
  ConvolutionOperands operands;
  ASSIGN_OR_RETURN(operands.output, Read(*c_.output));
  ASSIGN_OR_RETURN(operands.input, Read(*c_.input));
  ASSIGN_OR_RETURN(void* const sums, workspace_(plan.weight_bytes() * static_cast<size_t>(plan.parts())));
  operands.weight = static_cast<std::byte*>(sums);
  planner_.kernels_.LaunchParts(problem_, plan, operands, PartsPerGroup(plan), launches_);
  planner_.kernels_.LaunchSum(problem_, plan, sums, launches_);
  planner_.kernels_.LaunchUnpack(problem_, sums, ViewOf(*c_.weight), launches_);
  return absl::OkStatus();
}

absl::StatusOr<Readiness> OnednnConvolution::Way::Plan(const ConvolutionPlan& plan) {
  RETURN_IF_ERROR(problem_.direction == ops::Family::kConvolutionWeight ? PlanWeight(plan)
                                                                        : PlanTensor(plan));
  return readiness_;
}

OnednnConvolution::OnednnConvolution(KernelStore& store, Planner& maps, Planner& own, int workers)
    : maps_(maps),
      own_(own),
      kernels_(store,
               *store.Add({ModuleImage::Format::kHost, std::string(kOnednnModule)}, kConvolutionEntries[0])),
      workers_(std::max(1, workers)) {}

bool OnednnConvolution::Serves(ops::Family family) const {
  return family == ops::Family::kConvolution || family == ops::Family::kConvolutionInput ||
         family == ops::Family::kConvolutionWeight;
}

absl::StatusOr<Readiness> OnednnConvolution::Plan(const OpCall& call, Workspace workspace,
                                                  LaunchList& launches) {
  if (call.outputs[0].numel() == 0) return Readiness::kReady;
  ASSIGN_OR_RETURN(const ops::Convolution c, ops::ReadConvolution(call));
  const bool served = call.outputs[0].dtype != ops::DType::kFloat64 && c.input->numel() > 0 &&
                      c.output->numel() > 0 && c.weight->numel() > 0 && IsDistinct(*c.weight);
  if (!served) return own_.Plan(call, workspace, launches);
  Way way(*this, call, c, workspace, launches);
  const auto plan = ConvolutionPlan::Of(way.problem());
  return plan->usable() ? way.Plan(*plan) : own_.Plan(call, workspace, launches);
}

}  // namespace onednn
}  // namespace xpud::kernels
