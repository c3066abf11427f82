#include "kernels/library/attention/gpu_attention_gradient.h"

#include <algorithm>

namespace xpud::kernels::attention {
namespace {

int64_t SumBytes(const AttentionProblem& p) {
  return p.dtype == ops::DType::kFloat64 ? sizeof(double) : sizeof(float);
}

struct Entry {
  const Kernel* kernel;
  int lanes;
};
void LaunchOver(const Entry& entry, const AttentionGradientArguments& arguments, int64_t x, int64_t y,
                LaunchList& launches) {
  if (x == 0 || y == 0) return;
  Launch& launch = launches.Add();
  launch.Reset(entry.kernel, x, y);
  launch.group_size = {static_cast<uint32_t>(entry.lanes), 1, 1};
  launch.Push(arguments);
}

}  // namespace

absl::StatusOr<Readiness> GpuAttentionGradient::Plan(const AttentionGradientProblem& p, Workspace workspace,
                                                     LaunchList& launches) {
  ASSIGN_OR_RETURN(const Kernel* const delta, modules_.Gradient(p.dtype).Find(0));
  if (delta == nullptr) return Readiness::kCompiling;
  AttentionGradientArguments arguments = GradientArgumentsOf(p);
  const bool tensor_cores = FitsTensorCores(p);
  const int64_t rows = p.batch * p.heads * p.queries, sum = SumBytes(p);
  if (rows > 0) {
    ASSIGN_OR_RETURN(void* const memory, workspace(static_cast<size_t>(rows * sum * (tensor_cores ? 2 : 1))));
    arguments.delta = memory;
    if (tensor_cores) arguments.base = static_cast<float*>(memory) + rows;
    LaunchOver({delta, AttentionGradientArguments::kDeltaLanes}, arguments,
               CeilDivide(rows, AttentionGradientArguments::kDeltaRows), 1, launches);
  }
  if (!tensor_cores) return LaunchPlain(p, arguments, launches);
  if (SuitsTeams(p, gpu_) && FitsTensorMap(p.gradient, p.batch, p.heads)) {
    PtxModule& module = *modules_.MmaOf(p).teams_gradient;
    // Otherwise the driver's compiler is too old for tensor maps.
    if (module.Find(0).ok()) return LaunchTeams(module, p, arguments, workspace, launches);
  }
  return LaunchMma(p, arguments, launches);
}

absl::StatusOr<Readiness> GpuAttentionGradient::LaunchMma(const AttentionGradientProblem& p,
                                                          const AttentionGradientArguments& arguments,
                                                          LaunchList& launches) {
  PtxModule& module = *modules_.MmaOf(p).gradient;
  const size_t general = p.mask.data != nullptr || p.dropout.threshold != 0 ? 2 : 0;
  ASSIGN_OR_RETURN(const Kernel* const keys, module.Find(general));
  ASSIGN_OR_RETURN(const Kernel* const queries, module.Find(general + 1));
  if (keys == nullptr || queries == nullptr) return Readiness::kCompiling;
  constexpr int64_t kRows = AttentionGradientArguments::kMmaRows;
  constexpr int kLanes = AttentionGradientArguments::kMmaLanes;
  LaunchOver({keys, kLanes}, arguments, p.batch * p.KeyHeads() * CeilDivide(p.keys, kRows), 1, launches);
  LaunchOver({queries, kLanes}, arguments, p.batch * p.heads * CeilDivide(p.queries, kRows), 1, launches);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> GpuAttentionGradient::LaunchTeams(PtxModule& module,
                                                            const AttentionGradientProblem& p,
                                                            AttentionGradientArguments& arguments,
                                                            Workspace workspace, LaunchList& launches) const {
  ASSIGN_OR_RETURN(const Kernel* const keys, module.Find(0));
  ASSIGN_OR_RETURN(const Kernel* const queries, module.Find(1));
  if (keys == nullptr || queries == nullptr) return Readiness::kCompiling;
  constexpr int64_t kRows = AttentionGradientArguments::kTeams * AttentionGradientArguments::kTeamRows;
  constexpr int kLanes = (AttentionGradientArguments::kTeams + 1) * AttentionGradientArguments::kTeamLanes;
  RETURN_IF_ERROR(MakeMaps<AttentionGradientArguments>(p, gpu_.multiprocessors, arguments, workspace));
  arguments.gradient_strides = TensorMapStrides(p.gradient, p.batch, p.heads);
  LaunchOver({keys, kLanes}, arguments,
             std::min<int64_t>(gpu_.multiprocessors, p.batch * p.KeyHeads() * CeilDivide(p.keys, kRows)), 1,
             launches);
  LaunchOver({queries, kLanes}, arguments, std::min<int64_t>(gpu_.multiprocessors, TeamItems(p)), 1,
             launches);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> GpuAttentionGradient::LaunchPlain(const AttentionGradientProblem& p,
                                                            const AttentionGradientArguments& arguments,
                                                            LaunchList& launches) {
  PtxModule& module = modules_.Gradient(p.dtype);
  ASSIGN_OR_RETURN(const Kernel* const keys, module.Find(1));
  ASSIGN_OR_RETURN(const Kernel* const queries, module.Find(2));
  if (keys == nullptr || queries == nullptr) return Readiness::kCompiling;
  constexpr int64_t kColumns = AttentionGradientArguments::kPlainColumns;
  constexpr int kLanes = AttentionGradientArguments::kPlainLanes;
  const int64_t side = AttentionGradientArguments::kPlainSide * 4 / SumBytes(p);
  LaunchOver({keys, kLanes}, arguments, p.batch * p.KeyHeads() * CeilDivide(p.keys, side),
             CeilDivide(std::max(p.depth, p.value_depth), kColumns), launches);
  LaunchOver({queries, kLanes}, arguments, p.batch * p.heads * CeilDivide(p.queries, side),
             CeilDivide(p.depth, kColumns), launches);
  return Readiness::kReady;
}

}  // namespace xpud::kernels::attention
