#include "kernels/families/nll_planner.h"

#include <algorithm>

#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };
constexpr float kRowNanoseconds = 8;  // a loss: two scattered loads

Launch& Begin(LaunchList& launches, const Kernel* kernel, int64_t groups, bool gpu) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, static_cast<uint32_t>(std::max<int64_t>(groups, 1)));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  return launch;
}

// A launch of any stage but kMerge. `logp` may be absent.
void PushForward(Launch& launch, const OpCall& call, void* loss, void* total, const Operand& logp,
                 const Operand& target, const Operand& weight, int64_t slice, int64_t loss_stride) {
  void* const class_weights = weight.present ? weight.data : nullptr;
  for (void* pointer :
       {loss, total, logp.data, target.data, class_weights, static_cast<void*>(call.error_word)})
    launch.Push(pointer);
  for (const int64_t number :
       {logp.sizes[0], logp.sizes[1], call.attributes[1].AsInteger(), slice, logp.strides[0], logp.strides[1],
        target.strides[0], weight.present ? weight.strides[0] : 0, loss_stride}) {
    launch.Push(number);
  }
}

}  // namespace

absl::StatusOr<Readiness> NllPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  return call.row->outputs == 1 ? PlanBackward(call, workspace, launches)
                                : PlanForward(call, workspace, launches);
}

absl::StatusOr<Readiness> NllPlanner::PlanForward(const OpCall& call, Workspace workspace,
                                                  LaunchList& launches) {
  const Operand &logp = call.inputs[0], &target = call.inputs[1], &weight = call.inputs[2];
  const int64_t rows = logp.sizes[0], reduction = call.attributes[0].AsInteger();
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t parts = CeilDiv(rows, kNllPart);

  NllKey key;
  key.stage = reduction == kNone ? NllStage::kEach : parts <= 1 ? NllStage::kSum : NllStage::kPart;
  key.input = logp.dtype;
  key.target = target.dtype;
  key.other = call.outputs[1].dtype;
  key.weighted = weight.present;
  key.mean = reduction == kMean;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(forward_, key.Pack(/*backward=*/false)));
  NllKey merge_key = key;
  merge_key.stage = NllStage::kMerge;
  const Kernel* merge = nullptr;
  if (key.stage == NllStage::kPart) {
    ASSIGN_OR_RETURN(merge, cache_.Find(forward_, merge_key.Pack(/*backward=*/false)));
    if (merge == nullptr) return Readiness::kCompiling;
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  void* const loss = call.outputs[0].data;
  void* const total = call.outputs[1].data;
  if (key.stage != NllStage::kPart) {
    const bool each = key.stage == NllStage::kEach;
    const int64_t slice = !each ? kNllPart : gpu ? kGpuLanes : SliceOf(rows, kRowNanoseconds);
    PushForward(Begin(launches, kernel, CeilDiv(rows, slice), gpu), call, loss, total, logp, target, weight,
                slice, each ? call.outputs[0].strides[0] : 0);
    return Readiness::kReady;
  }
  ASSIGN_OR_RETURN(void* const states, workspace(static_cast<size_t>(parts) * 2 * sizeof(double)));
  PushForward(Begin(launches, kernel, parts, gpu), call, states, nullptr, logp, target, weight, kNllPart, 0);
  Launch& merging = Begin(launches, merge, 1, gpu);
  for (void* pointer : {loss, total, states}) merging.Push(pointer);
  merging.Push(parts);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> NllPlanner::PlanBackward(const OpCall& call, Workspace workspace,
                                                   LaunchList& launches) {
  const Operand &dx = call.outputs[0], &gradient = call.inputs[0], &logp = call.inputs[1],
                &target = call.inputs[2];
  const Operand& weight = call.inputs[3];
  const int64_t rows = dx.sizes[0], classes = dx.sizes[1], reduction = call.attributes[0].AsInteger();
  if (rows * classes == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;
  const int64_t parts = CeilDiv(rows, kNllPart);

  NllKey key;
  key.input = gradient.dtype;
  key.target = target.dtype;
  key.other = dx.dtype;
  key.weighted = weight.present;
  key.mean = reduction == kMean;
  key.each = reduction == kNone;
  key.contiguous = dx.strides[1] == 1;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(backward_, key.Pack(/*backward=*/true)));
  void* states = nullptr;
  if (key.mean) {
    NllKey total_key;
    total_key.stage = NllStage::kWeights;
    total_key.input = key.input;
    total_key.target = key.target;
    total_key.weighted = key.weighted;
    ASSIGN_OR_RETURN(const Kernel* const total, cache_.Find(forward_, total_key.Pack(/*backward=*/false)));
    if (total == nullptr || kernel == nullptr) return Readiness::kCompiling;
    ASSIGN_OR_RETURN(states, workspace(static_cast<size_t>(parts) * 2 * sizeof(double)));
    PushForward(Begin(launches, total, parts, gpu), call, states, nullptr, logp, target, weight, kNllPart, 0);
  }
  if (kernel == nullptr) return Readiness::kCompiling;

  const float row_nanoseconds =
      static_cast<float>(classes) * static_cast<float>(ops::SizeOf(dx.dtype)) / kBytesPerNanosecond +
      kRowNanoseconds;
  const int64_t slice = gpu ? kGpuLanes : SliceOf(rows, row_nanoseconds, 1);
  Launch& launch = Begin(launches, kernel, CeilDiv(gpu ? rows * classes : rows, slice), gpu);
  void* const class_weights = weight.present ? weight.data : nullptr;
  for (void* pointer :
       {dx.data, gradient.data, target.data, class_weights, states, static_cast<void*>(call.error_word)})
    launch.Push(pointer);
  for (const int64_t number :
       {rows, classes, call.attributes[1].AsInteger(), slice, parts, dx.strides[0], dx.strides[1],
        key.each ? gradient.strides[0] : 0, target.strides[0], weight.present ? weight.strides[0] : 0}) {
    launch.Push(number);
  }
  return Readiness::kReady;
}

}  // namespace xpud::kernels
