#include "kernels/library/onednn/onednn_convolution.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/library/convolution/operand_copies.h"
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

ConvolutionProblem ProblemOf(const OpCall& call, const ops::Convolution& c) {
  const ops::DType type = call.outputs[0].dtype;
  ConvolutionProblem p =
      convolution::ReadProblem(call, c, MultipliesNatively(type) ? type : ops::DType::kFloat32);
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
        problem_(ProblemOf(call, c)),
        copies_(planner.maps_, workspace, launches, problem_.type, convolution::Layout::kChannelsLast) {}

  const ConvolutionProblem& problem() const { return problem_; }
  absl::StatusOr<Readiness> Plan(const ConvolutionPlan& plan);

 private:
  absl::StatusOr<std::byte*> ReadBias() {
    if (!problem_.bias) return nullptr;
    Operand row = *c_.bias;  // as a tensor with channels
    row.rank = 2;
    row.sizes[1] = row.sizes[0], row.strides[1] = row.strides[0];
    row.sizes[0] = 1, row.strides[0] = 0;
    return copies_.Read(row);
  }
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
  convolution::OperandCopies copies_;
};

uint32_t OnednnConvolution::Way::PartsPerGroup(const ConvolutionPlan& plan) const {
  if (plan.nanoseconds() > kLongNanoseconds) return 1;
  const int64_t most = planner_.workers_ == 1 ? 1 : kGroupsPerWorker * planner_.workers_;
  const int64_t groups =
      std::clamp<int64_t>(static_cast<int64_t>(plan.nanoseconds() / kGroupNanoseconds), 1, most);
  return static_cast<uint32_t>((plan.parts() + groups - 1) / groups);
}

// The convolution itself, or the gradient by its input.
absl::Status OnednnConvolution::Way::PlanTensor(const ConvolutionPlan& plan) {
  const bool forward = problem_.direction == ops::Family::kConvolution;
  const Operand& out = call_.outputs[0];
  ConvolutionOperands operands;
  ASSIGN_OR_RETURN(std::byte* const source, copies_.Read(call_.inputs[0]));
  ASSIGN_OR_RETURN(operands.weight, PackWeight(plan));
  ASSIGN_OR_RETURN(operands.bias, ReadBias());
  ASSIGN_OR_RETURN(const Operand result, copies_.Result(out));
  operands.input = forward ? source : static_cast<std::byte*>(result.data);
  operands.output = forward ? static_cast<std::byte*>(result.data) : source;
  planner_.kernels_.LaunchParts(problem_, plan, operands, PartsPerGroup(plan), launches_);
  const bool added = c_.bias == nullptr || problem_.bias;
  return copies_.Write(result, out, added ? nullptr : c_.bias);
}

absl::Status OnednnConvolution::Way::PlanWeight(const ConvolutionPlan& plan) {
  ConvolutionOperands operands;
  ASSIGN_OR_RETURN(operands.output, copies_.Read(*c_.output));
  ASSIGN_OR_RETURN(operands.input, copies_.Read(*c_.input));
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
  return copies_.readiness();
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
