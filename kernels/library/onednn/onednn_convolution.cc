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

std::unique_ptr<Planner> CreateOnednnConvolution(KernelStore& store, Planner& maps, Planner& own, int workers,
                                                 bool elsewhere) {
  return std::make_unique<onednn::OnednnConvolution>(store, maps, own, workers, elsewhere);
}

namespace onednn {
namespace {

constexpr double kGroupNanoseconds = 30e3;  // less work than this is one group
constexpr int64_t kGroupsPerWorker = 4;

// What a convolution of this type is computed in.
ops::DType ComputedIn(ops::DType type) { return MultipliesNatively(type) ? type : ops::DType::kFloat32; }

// A tensor that oneDNN's layout does not suit is copied to channels-last.
Layout LayoutOf(const Operand& operand, ops::DType type) {
  const bool contiguous = convolution::IsDense(operand, type, Layout::kContiguous) &&
                          !convolution::IsDense(operand, type, Layout::kChannelsLast);
  return contiguous ? Layout::kContiguous : Layout::kChannelsLast;
}

LaidConvolution LaidOf(const ops::Convolution& c, ops::Family direction, ops::DType type) {
  LaidConvolution laid;
  laid.problem = convolution::ReadProblem(c, direction, type);
  laid.problem.bias = c.bias != nullptr && laid.problem.direction == ops::Family::kConvolution;
  laid.input = LayoutOf(*c.input, type);
  laid.output = LayoutOf(*c.output, type);
  return laid;
}

WeightView ViewOf(const Operand& weight) {
  WeightView view;
  view.data = static_cast<std::byte*>(weight.data);
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

// A call as it is computed. Where the kernel is one position without padding, simpler calls say the same:
// - a stride reads some positions of the input. If its channels are planes, these are copied: a quarter of
//   what oneDNN would convert.
// - the gradient by the input is the convolution of the output's gradient with the transposed weight.
class Simplified {
 public:
  Simplified(const ops::Convolution& c, ops::Family direction) : c_(c), direction_(direction) {
    bool pointwise = true, strided = false;
    for (int d = 0; d < c.spatial; ++d) {
      const auto i = static_cast<size_t>(d);
      pointwise &= c.weight->sizes[i + 2] == 1 && c.padding[i] == 0;
      strided |= c.stride[i] != 1;
    }
    if (!pointwise) return;
    const bool by_input = direction == ops::Family::kConvolutionInput;
    if (by_input && !strided && c.groups == 1) Transpose();
    if (!by_input && strided && convolution::IsDense(*c.input, c.input->dtype, Layout::kContiguous)) Sample();
  }
  Simplified(const Simplified&) = delete;
  Simplified& operator=(const Simplified&) = delete;

  const ops::Convolution& convolution() const { return c_; }
  ops::Family direction() const { return direction_; }
  // Plans the copy of the input, if there is one. Called once, before the convolution is planned.
  absl::StatusOr<Readiness> Copy(Planner& maps, Workspace workspace, LaunchList& launches) {
    if (c_.input != &dense_) return Readiness::kReady;
    convolution::OperandCopies copies(maps, workspace, launches, dense_.dtype, Layout::kContiguous);
    ASSIGN_OR_RETURN(dense_.data, copies.Read(sampled_));
    return copies.readiness();
  }

 private:
  void Transpose() {
    transposed_ = *c_.weight;
    std::swap(transposed_.sizes[0], transposed_.sizes[1]);
    std::swap(transposed_.strides[0], transposed_.strides[1]);
    c_.weight = &transposed_;
    std::swap(c_.input, c_.output);
    direction_ = ops::Family::kConvolution;
  }
  void Sample() {
    sampled_ = *c_.input;
    for (int d = 0; d < c_.spatial; ++d) {
      const auto i = static_cast<size_t>(d);
      sampled_.sizes[i + 2] = c_.output->sizes[i + 2];
      sampled_.strides[i + 2] *= c_.stride[i];
      c_.stride[i] = 1;
    }
    dense_ = convolution::Dense(sampled_, sampled_.dtype, Layout::kContiguous, nullptr);
    c_.input = &dense_;
  }

  ops::Convolution c_;
  ops::Family direction_;
  Operand transposed_, sampled_, dense_;
};

}  // namespace

class OnednnConvolution::Way {
 public:
  // Computes in `type`.
  Way(OnednnConvolution& planner, const ops::Convolution& c, ops::Family direction, ops::DType type,
      Workspace workspace, LaunchList& launches)
      : planner_(planner),
        c_(c),
        workspace_(workspace),
        launches_(launches),
        laid_(LaidOf(c, direction, type)),
        plan_(ConvolutionPlan::Of(laid_)),
        copies_(planner.maps_, workspace, launches, problem().type, Layout::kChannelsLast) {}

  bool usable() const { return plan_->usable(); }
  absl::StatusOr<Readiness> Plan();

 private:
  const ConvolutionProblem& problem() const { return laid_.problem; }
  absl::StatusOr<std::byte*> Read(const Operand& operand, Layout layout) {
    if (layout == Layout::kContiguous) return static_cast<std::byte*>(operand.data);
    return copies_.Read(operand);
  }
  absl::StatusOr<std::byte*> ReadBias();
  absl::StatusOr<PackedConvolution*> ReadWeight(ConvolutionOperands& operands);
  absl::StatusOr<WeightView> ViewInType(const Operand& weight);
  uint32_t PartsPerGroup() const;
  absl::Status PlanTensor();
  absl::Status PlanWeight();

  OnednnConvolution& planner_;
  const ops::Convolution& c_;
  const Workspace workspace_;
  LaunchList& launches_;
  const LaidConvolution laid_;
  const std::shared_ptr<const ConvolutionPlan> plan_;
  convolution::OperandCopies copies_;
};

absl::StatusOr<std::byte*> OnednnConvolution::Way::ReadBias() {
  if (!problem().bias) return nullptr;
  Operand row = *c_.bias;  // as a tensor with channels
  row.rank = 2;
  row.sizes[1] = row.sizes[0], row.strides[1] = row.strides[0];
  row.sizes[0] = 1, row.strides[0] = 0;
  return copies_.Read(row);
}

absl::StatusOr<WeightView> OnednnConvolution::Way::ViewInType(const Operand& weight) {
  if (weight.dtype == problem().type) return ViewOf(weight);
  ASSIGN_OR_RETURN(std::byte* const copy, copies_.Read(weight));
  return ViewOf(convolution::Dense(weight, problem().type, Layout::kChannelsLast, copy));
}

// Returns the kept weight, or packs this call's weight to workspace and returns null.
absl::StatusOr<PackedConvolution*> OnednnConvolution::Way::ReadWeight(ConvolutionOperands& operands) {
  const PackedWeightCache::Found found = planner_.FindPacked(laid_, plan_, *c_.weight);
  if (auto* const kept = static_cast<PackedConvolution*>(found.weights); kept != nullptr) {
    if (found.packing != nullptr) planner_.kernels_.LaunchPack(*kept, found.groups, launches_);
    return kept;
  }
  ASSIGN_OR_RETURN(const WeightView view, ViewInType(*c_.weight));
  ASSIGN_OR_RETURN(void* const packed, workspace_(plan_->weight_bytes()));
  planner_.kernels_.LaunchPack(laid_, *plan_, view, packed, launches_);
  operands.weight = static_cast<std::byte*>(packed);
  return nullptr;
}

uint32_t OnednnConvolution::Way::PartsPerGroup() const {
  const int64_t most = planner_.workers_ == 1 ? 1 : kGroupsPerWorker * planner_.workers_;
  const int64_t groups =
      std::clamp<int64_t>(static_cast<int64_t>(plan_->nanoseconds() / kGroupNanoseconds), 1, most);
  const int64_t parts = (plan_->parts() + groups - 1) / groups;
  const double part = plan_->nanoseconds() / static_cast<double>(plan_->parts());
  return static_cast<uint32_t>(
      std::clamp<int64_t>(static_cast<int64_t>(kMaxConvolutionNanoseconds / part), 1, parts));
}

// The convolution itself, or the gradient by its input.
absl::Status OnednnConvolution::Way::PlanTensor() {
  const bool forward = problem().direction == ops::Family::kConvolution;
  const Operand &out = *c_.result, &from = forward ? *c_.input : *c_.output;
  const Layout source_layout = forward ? laid_.input : laid_.output,
               result_layout = forward ? laid_.output : laid_.input;
  ConvolutionOperands operands;
  ASSIGN_OR_RETURN(std::byte* const source, Read(from, source_layout));
  ASSIGN_OR_RETURN(PackedConvolution* const packed, ReadWeight(operands));
  ASSIGN_OR_RETURN(operands.bias, ReadBias());
  Operand result = out;
  if (result_layout != Layout::kContiguous) {
    ASSIGN_OR_RETURN(result, copies_.Result(out));
  }
  operands.input = forward ? source : static_cast<std::byte*>(result.data);
  operands.output = forward ? static_cast<std::byte*>(result.data) : source;
  planner_.kernels_.LaunchParts(laid_, *plan_, operands, packed, PartsPerGroup(), launches_);
  const bool added = c_.bias == nullptr || problem().bias;
  return copies_.Write(result, out, added ? nullptr : c_.bias);
}

absl::Status OnednnConvolution::Way::PlanWeight() {
  ConvolutionOperands operands;
  ASSIGN_OR_RETURN(operands.output, Read(*c_.output, laid_.output));
  ASSIGN_OR_RETURN(operands.input, Read(*c_.input, laid_.input));
  ASSIGN_OR_RETURN(void* const sums, workspace_(plan_->weight_bytes() * static_cast<size_t>(plan_->sums())));
  operands.weight = static_cast<std::byte*>(sums);
  planner_.kernels_.LaunchParts(laid_, *plan_, operands, nullptr, PartsPerGroup(), launches_);
  planner_.kernels_.LaunchAddition(laid_, *plan_, sums, launches_);
  Operand result = *c_.weight;  // in f32
  if (result.dtype != ops::DType::kFloat32) {
    ASSIGN_OR_RETURN(void* const converted, workspace_(static_cast<size_t>(result.numel()) * sizeof(float)));
    result = convolution::Dense(*c_.weight, ops::DType::kFloat32, Layout::kContiguous, converted);
  }
  planner_.kernels_.LaunchUnpack(laid_, *plan_, sums, ViewOf(result), launches_);
  return copies_.Write(result, *c_.weight, nullptr);
}

absl::StatusOr<Readiness> OnednnConvolution::Way::Plan() {
  RETURN_IF_ERROR(problem().direction == ops::Family::kConvolutionWeight ? PlanWeight() : PlanTensor());
  return copies_.readiness();
}

OnednnConvolution::OnednnConvolution(KernelStore& store, Planner& maps, Planner& own, int workers,
                                     bool elsewhere)
    : maps_(maps),
      own_(own),
      kernels_(store,
               *store.Add({ModuleImage::Format::kHost, std::string(kOnednnModule)}, kConvolutionEntries[0])),
      depthwise_(store, kernels_.any()),
      workers_(std::max(1, workers)),
      elsewhere_(elsewhere),
      packed_(DefaultPackedBytes() / 2) {}

// All at once: a convolution whose weight is not kept packs it for each call.
PackedWeightCache::Found OnednnConvolution::FindPacked(const LaidConvolution& laid,
                                                       const std::shared_ptr<const ConvolutionPlan>& plan,
                                                       const Operand& weight) {
  if (elsewhere_ || weight.content == 0 || weight.dtype != laid.problem.type) return {};
  struct {
    LaidConvolution laid;
    WeightView weight;
  } const key = {laid, ViewOf(weight)};
  return packed_.Find({reinterpret_cast<const char*>(&key), sizeof(key)}, weight.content, /*parts=*/1,
                      [&] { return std::make_unique<PackedConvolution>(plan, key.weight); });
}

absl::StatusOr<Readiness> OnednnConvolution::Plan(const OpCall& call, Workspace workspace,
                                                  LaunchList& launches) {
  ASSIGN_OR_RETURN(const ops::Convolution c, ops::ReadConvolution(call));
  if (c.result->numel() == 0) return Readiness::kReady;
  const bool served = c.result->dtype != ops::DType::kFloat64 && c.input->numel() > 0 &&
                      c.output->numel() > 0 && c.weight->numel() > 0 && IsDistinct(*c.weight);
  if (!served) return own_.Plan(call, workspace, launches);
  if (depthwise_.Plan(c, call.row->family, workers_, launches)) return Readiness::kReady;
  // oneDNN may have a convolution, but not its gradients, in a type that this CPU multiplies; in f32 it has
  // all.
  const ops::DType native = ComputedIn(c.result->dtype);
  Simplified simplified(c, call.row->family);
  for (const ops::DType type : {native, ops::DType::kFloat32}) {
    Way way(*this, simplified.convolution(), simplified.direction(), type, workspace, launches);
    if (way.usable()) {
      ASSIGN_OR_RETURN(const Readiness copied, simplified.Copy(maps_, workspace, launches));
      ASSIGN_OR_RETURN(const Readiness planned, way.Plan());
      return copied == Readiness::kReady ? planned : copied;
    }
    if (native == ops::DType::kFloat32) break;
  }
  return own_.Plan(call, workspace, launches);
}

}  // namespace onednn
}  // namespace xpud::kernels
