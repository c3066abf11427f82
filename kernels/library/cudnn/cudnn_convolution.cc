#include "kernels/library/cudnn/cudnn_convolution.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/library/convolution/operand_copies.h"
#include "kernels/library/cudnn/cudnn_kernels.h"
#include "kernels/library/host_modules.h"
#include "kernels/library/planners.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

std::unique_ptr<Planner> CreateCudnnConvolution(KernelStore& store, Planner& maps, Planner& own,
                                                HostKernelRunner run) {
  return std::make_unique<cudnn::CudnnConvolution>(store, maps, own, std::move(run));
}

namespace cudnn {
namespace {

using convolution::ConvolutionOperands;
using convolution::IsDense;
using convolution::Layout;
using convolution::OperandCopies;

constexpr uint8_t kMaxAlignment = 16;

uint8_t AlignmentOf(const Operand& operand) {
  const auto address = reinterpret_cast<uintptr_t>(operand.data);
  return static_cast<uint8_t>(address == 0 ? kMaxAlignment
                                           : std::min<uintptr_t>(kMaxAlignment, address & (~address + 1)));
}

// Returns the layout of the first tensor that has only one.
Layout LayoutOf(std::initializer_list<const Operand*> tensors) {
  for (const Operand* const tensor : tensors) {
    const bool contiguous = IsDense(*tensor, tensor->dtype, Layout::kContiguous);
    if (contiguous != IsDense(*tensor, tensor->dtype, Layout::kChannelsLast))
      return contiguous ? Layout::kContiguous : Layout::kChannelsLast;
  }
  return Layout::kContiguous;
}

Problem ProblemOf(const OpCall& call, const ops::Convolution& c) {
  const ops::DType type = c.result->dtype;
  Problem problem;
  problem.convolution = convolution::ReadProblem(c, call.row->family, type);
  problem.tf32 = c.allow_tf32 && type == ops::DType::kFloat32;
  problem.deterministic = c.deterministic;
  problem.layout = LayoutOf({c.result, c.input, c.output, c.weight});
  for (const Operand* const tensor : {c.input, c.weight, c.output})  // copies are aligned
    if (IsDense(*tensor, type, problem.layout))
      problem.alignment = std::min(problem.alignment, AlignmentOf(*tensor));
  return problem;
}

}  // namespace

CudnnConvolution::CudnnConvolution(KernelStore& store, Planner& maps, Planner& own, HostKernelRunner run)
    : maps_(maps),
      own_(own),
      convolve_(store.Add({ModuleImage::Format::kHost, std::string(kCudnnModule)}, kConvolve)),
      workspaces_(store, store.AddEntry(*convolve_, kPrepare), std::move(run)) {}

absl::StatusOr<Readiness> CudnnConvolution::Launch(const ops::Convolution& c, const Problem& problem,
                                                   uint64_t bytes, Workspace workspace,
                                                   LaunchList& launches) {
  OperandCopies copies(maps_, workspace, launches, problem.convolution.type, problem.layout);
  ASSIGN_OR_RETURN(const Operand result, copies.Result(*c.result));
  const auto place = [&](const Operand& operand) -> absl::StatusOr<std::byte*> {
    if (&operand == c.result) return static_cast<std::byte*>(result.data);
    return copies.Read(operand);
  };
  ConvolutionOperands operands;
  ASSIGN_OR_RETURN(operands.input, place(*c.input));
  ASSIGN_OR_RETURN(operands.weight, place(*c.weight));
  ASSIGN_OR_RETURN(operands.output, place(*c.output));
  void* memory = nullptr;
  if (bytes != 0) {
    ASSIGN_OR_RETURN(memory, workspace(bytes));
  }
  xpud::kernels::Launch& launch = launches.Add();
  launch.Reset(convolve_, 1);
  launch.Push(operands);
  launch.Push(memory);
  launch.Push(bytes);
  launch.Push(problem);
  RETURN_IF_ERROR(copies.Write(result, *c.result, c.bias));
  return copies.readiness();
}

absl::StatusOr<Readiness> CudnnConvolution::Plan(const OpCall& call, Workspace workspace,
                                                 LaunchList& launches) {
  ASSIGN_OR_RETURN(const ops::Convolution c, ops::ReadConvolution(call));
  if (c.result->numel() == 0) return Readiness::kReady;
  if (c.input->numel() == 0 || c.output->numel() == 0 || c.weight->numel() == 0)
    return own_.Plan(call, workspace, launches);
  const Problem problem = ProblemOf(call, c);
  const Workspaces::Found found = workspaces_.Find(problem);
  switch (found.state) {
    case Workspaces::State::kAsked:
      return Readiness::kCompiling;
    case Workspaces::State::kRefused:
      return own_.Plan(call, workspace, launches);
    case Workspaces::State::kKnown:
      return Launch(c, problem, found.bytes, workspace, launches);
  }
  return absl::InternalError("unreachable");
}

}  // namespace cudnn
}  // namespace xpud::kernels
