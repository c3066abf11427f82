// The planner of kAttention, kTrainingAttention and kAttentionBackward on NVIDIA GPUs; the kernels are
// gpu/attention_*.cu.
#include <algorithm>
#include <memory>
#include <string>

#include "kernels/library/attention/attention_problem.h"
#include "kernels/library/attention/gpu_attention_forward.h"
#include "kernels/library/attention/gpu_attention_gradient.h"
#include "kernels/library/attention/gpu_attention_modules.h"
#include "kernels/library/planners.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace attention {
namespace {

class GpuAttention : public Planner {
 public:
  GpuAttention(KernelStore& store, Gpu gpu)
      : modules_(store), forward_(modules_, gpu), gradient_(modules_, gpu) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override {
    if (call.row->family == ops::Family::kAttentionBackward) return PlanGradient(call, workspace, launches);
    ASSIGN_OR_RETURN(const AttentionProblem problem, ReadAttention(call));
    if (problem.Empty() || problem.value_depth == 0) return Readiness::kReady;
    RETURN_IF_ERROR(CheckGroups(problem, problem.queries));
    return forward_.Plan(problem, workspace, launches);
  }

 private:
  // `rows` are those of a head.
  static absl::Status CheckGroups(const AttentionProblem& p, int64_t rows) {
    if (p.batch * p.heads <= INT32_MAX / std::max<int64_t>(1, rows)) return absl::OkStatus();
    return absl::UnimplementedError("attention of more than 2^31 rows in all on a GPU");
  }

  absl::StatusOr<Readiness> PlanGradient(const OpCall& call, Workspace workspace, LaunchList& launches) {
    ASSIGN_OR_RETURN(const AttentionGradientProblem problem, ReadAttentionGradient(call));
    if (problem.batch == 0 || problem.heads == 0) return Readiness::kReady;
    RETURN_IF_ERROR(CheckGroups(problem, std::max(problem.queries, problem.keys)));
    return gradient_.Plan(problem, workspace, launches);
  }

  GpuAttentionModules modules_;
  GpuAttentionForward forward_;
  GpuAttentionGradient gradient_;
};

}  // namespace
}  // namespace attention

std::unique_ptr<Planner> CreateGpuAttention(KernelStore& store, const std::string& processor, int workers) {
  return std::make_unique<attention::GpuAttention>(
      store, attention::Gpu{.hopper = processor == "sm_90", .multiprocessors = workers});
}

}  // namespace xpud::kernels
