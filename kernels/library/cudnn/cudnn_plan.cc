#include "kernels/library/cudnn/cudnn_plan.h"

#include <algorithm>
#include <array>

namespace xpud::kernels::cudnn {
namespace {

using convolution::ConvolutionProblem;
using convolution::Layout;

constexpr int64_t kInputId = 'x', kWeightId = 'w', kOutputId = 'y';

DataType TypeOf(ops::DType type) {
  switch (type) {
    case ops::DType::kFloat64:
      return DataType::kFloat64;
    case ops::DType::kFloat16:
      return DataType::kFloat16;
    case ops::DType::kBFloat16:
      return DataType::kBFloat16;
    default:
      return DataType::kFloat32;
  }
}

// The attributes of the operation of a direction.
struct Operation {
  DescriptorType type;
  Attribute alpha, beta, convolution, input, weight, output;
};

Operation OperationOf(ops::Family direction) {
  switch (direction) {
    case ops::Family::kConvolutionInput:
      return {DescriptorType::kBackwardData, Attribute::kDataAlpha, Attribute::kDataBeta,
              Attribute::kDataConvolution,   Attribute::kDataInput, Attribute::kDataWeight,
              Attribute::kDataOutput};
    case ops::Family::kConvolutionWeight:
      return {DescriptorType::kBackwardFilter, Attribute::kFilterAlpha, Attribute::kFilterBeta,
              Attribute::kFilterConvolution,   Attribute::kFilterInput, Attribute::kFilterWeight,
              Attribute::kFilterOutput};
    default:
      return {DescriptorType::kForward,       Attribute::kForwardAlpha, Attribute::kForwardBeta,
              Attribute::kForwardConvolution, Attribute::kForwardInput, Attribute::kForwardWeight,
              Attribute::kForwardOutput};
  }
}

}  // namespace

ze_result_t ResultOf(Status status) {
  if (status == Status::kSuccess) return ZE_RESULT_SUCCESS;
  const bool unsupported =
      static_cast<int>(status) / kStatusGroup == static_cast<int>(Status::kNotSupported) / kStatusGroup;
  return unsupported ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE : ZE_RESULT_ERROR_UNKNOWN;
}

Object Plan::TensorOf(int64_t id, int64_t first, int64_t channels,
                      const ConvolutionProblem::List& rest) const {
  std::vector<int64_t> sizes = {first, channels};
  sizes.insert(sizes.end(), rest.begin(), rest.begin() + problem_.convolution.spatial);
  std::vector<int64_t> strides(sizes.size());
  const bool last = problem_.layout == Layout::kChannelsLast;
  int64_t next = last ? channels : 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (last && d == 1) {
      strides[d] = 1;
      continue;
    }
    strides[d] = next;
    next *= sizes[d];
  }
  Object tensor(api_, DescriptorType::kTensor);
  tensor.Set(Attribute::kTensorType, AttributeType::kDataType, TypeOf(problem_.convolution.type))
      .Set(Attribute::kTensorSizes, AttributeType::kInt64, std::span<const int64_t>(sizes))
      .Set(Attribute::kTensorStrides, AttributeType::kInt64, std::span<const int64_t>(strides))
      .Set(Attribute::kTensorId, AttributeType::kInt64, id)
      .Set(Attribute::kTensorAlignment, AttributeType::kInt64, int64_t{problem_.alignment})
      .Finalize();
  return tensor;
}

Object Plan::MakeConvolution() const {
  const ConvolutionProblem& p = problem_.convolution;
  const auto list = [&](const ConvolutionProblem::List& values) {
    return std::span<const int64_t>(values).first(static_cast<size_t>(p.spatial));
  };
  const DataType compute = p.type == ops::DType::kFloat64 ? DataType::kFloat64 : DataType::kFloat32;
  Object object(api_, DescriptorType::kConvolution);
  object.Set(Attribute::kConvolutionComputeType, AttributeType::kDataType, compute)
      .Set(Attribute::kConvolutionMode, AttributeType::kConvolutionMode, ConvolutionMode::kCrossCorrelation)
      .Set(Attribute::kConvolutionSpatialDims, AttributeType::kInt64, p.spatial)
      .Set(Attribute::kConvolutionPrePaddings, AttributeType::kInt64, list(p.padding))
      .Set(Attribute::kConvolutionPostPaddings, AttributeType::kInt64, list(p.padding))
      .Set(Attribute::kConvolutionDilations, AttributeType::kInt64, list(p.dilation))
      .Set(Attribute::kConvolutionStrides, AttributeType::kInt64, list(p.stride))
      .Finalize();
  return object;
}

// `tensors`: input, weight, output.
Object Plan::MakeOperation(std::span<const Object> tensors, const Object& convolution) const {
  const Operation operation = OperationOf(problem_.convolution.direction);
  Object object(api_, operation.type);
  if (problem_.convolution.type == ops::DType::kFloat64) {
    object.Set(operation.alpha, AttributeType::kDouble, 1.0).Set(operation.beta, AttributeType::kDouble, 0.0);
  } else {
    object.Set(operation.alpha, AttributeType::kFloat, 1.0F).Set(operation.beta, AttributeType::kFloat, 0.0F);
  }
  object.Set(operation.convolution, convolution)
      .Set(operation.input, tensors[0])
      .Set(operation.weight, tensors[1])
      .Set(operation.output, tensors[2])
      .Finalize();
  return object;
}

// Returns true if the engine computes as exactly as the problem says.
bool Plan::Allows(const Object& config) const {
  Object engine(api_, DescriptorType::kEngine);
  Descriptor descriptor = engine.get();
  int64_t count = 0;
  std::array<NumericalNote, kMaxNotes> notes{};
  if (api_.get(config.get(), Attribute::kConfigEngine, AttributeType::kDescriptor, 1, &count, &descriptor) !=
          Status::kSuccess ||
      api_.get(engine.get(), Attribute::kEngineNotes, AttributeType::kNumericalNote, kMaxNotes, &count,
               notes.data()) != Status::kSuccess)
    return false;
  const auto has = [&](NumericalNote note) {
    const auto end = notes.begin() + std::min(count, kMaxNotes);
    return std::find(notes.begin(), end, note) != end;
  };
  if (problem_.deterministic && has(NumericalNote::kNonDeterministic)) return false;
  if (problem_.convolution.type != ops::DType::kFloat32) return true;
  return !has(NumericalNote::kDownConvertInputs) && (problem_.tf32 || !has(NumericalNote::kTensorCore));
}

// Takes the first engine of the list that is allowed and works. Returns false if there is none.
bool Plan::ChooseBy(Handle handle, HeuristicMode mode, const Object& graph) {
  Object heuristic(api_, DescriptorType::kEngineHeuristic);
  heuristic.Set(Attribute::kHeuristicGraph, graph)
      .Set(Attribute::kHeuristicMode, AttributeType::kHeuristicMode, mode)
      .Finalize();
  int64_t count = 0;
  if (heuristic.status() != Status::kSuccess ||
      api_.get(heuristic.get(), Attribute::kHeuristicResults, AttributeType::kDescriptor, 0, &count,
               nullptr) != Status::kSuccess)
    return false;
  std::vector<Object> configs;
  std::vector<Descriptor> descriptors;
  for (int64_t i = 0; i < count; ++i)
    descriptors.push_back(configs.emplace_back(api_, DescriptorType::kEngineConfig).get());
  if (api_.get(heuristic.get(), Attribute::kHeuristicResults, AttributeType::kDescriptor, count, &count,
               descriptors.data()) != Status::kSuccess)
    return false;
  for (int64_t i = 0; i < count; ++i) {
    const Object& config = configs[static_cast<size_t>(i)];
    if (!Allows(config)) continue;
    auto plan = std::make_unique<Object>(api_, DescriptorType::kExecutionPlan);
    plan->Set(Attribute::kPlanHandle, AttributeType::kHandle, handle)
        .Set(Attribute::kPlanConfig, config)
        .Finalize();
    int64_t bytes = 0, one = 0;
    if (plan->status() != Status::kSuccess ||
        api_.get(plan->get(), Attribute::kPlanWorkspace, AttributeType::kInt64, 1, &one, &bytes) !=
            Status::kSuccess ||
        bytes < 0 || static_cast<size_t>(bytes) > most_workspace_)
      continue;
    plan_ = std::move(plan);
    workspace_bytes_ = static_cast<size_t>(bytes);
    return true;
  }
  return false;
}

Status Plan::Choose(Handle handle) {
  const ConvolutionProblem& p = problem_.convolution;
  std::vector<Object> tensors;
  tensors.push_back(TensorOf(kInputId, p.batch, p.input_channels, p.input));
  tensors.push_back(TensorOf(kWeightId, p.output_channels, p.input_channels / p.groups, p.kernel));
  tensors.push_back(TensorOf(kOutputId, p.batch, p.output_channels, p.output));
  const Object convolution = MakeConvolution();
  const Object operation = MakeOperation(tensors, convolution);
  Object graph(api_, DescriptorType::kOperationGraph);
  graph.Set(Attribute::kGraphHandle, AttributeType::kHandle, handle)
      .Set(Attribute::kGraphOperations, operation)
      .Finalize();
  if (graph.status() != Status::kSuccess) return graph.status();
  const bool chosen =
      ChooseBy(handle, HeuristicMode::kA, graph) || ChooseBy(handle, HeuristicMode::kFallback, graph);
  return chosen ? Status::kSuccess : Status::kNotSupported;
}

Plan::Prepared Plan::Prepare(Handle handle) {
  MutexLock lock(mutex_);
  if (plan_ == nullptr)
    if (const Status status = Choose(handle); status != Status::kSuccess) return {status, 0};
  return {Status::kSuccess, workspace_bytes_};
}

Status Plan::Run(Handle handle, const convolution::ConvolutionOperands& operands, void* workspace) {
  const int64_t ids[] = {kInputId, kWeightId, kOutputId};
  const void* const pointers[] = {operands.input, operands.weight, operands.output};
  Object pack(api_, DescriptorType::kVariantPack);
  pack.Set(Attribute::kPackIds, AttributeType::kInt64, std::span<const int64_t>(ids))
      .Set(Attribute::kPackPointers, AttributeType::kPointer, std::span<const void* const>(pointers))
      .Set(Attribute::kPackWorkspace, AttributeType::kPointer, workspace)
      .Finalize();
  if (pack.status() != Status::kSuccess) return pack.status();
  MutexLock lock(mutex_);
  return api_.execute(handle, plan_->get(), pack.get());
}

}  // namespace xpud::kernels::cudnn
