// The planner and the kernels of kAttention, kTrainingAttention and kAttentionBackward on the host.
#include <algorithm>
#include <iterator>
#include <string>

#include "kernels/library/attention/attention_problem.h"
#include "kernels/library/host_modules.h"
#include "kernels/library/planners.h"
#include "kernels/library/simd/simd.h"
#include "kernels/library/thread_memory.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels {
namespace attention {
namespace {

constexpr double kGroupNanoseconds = 30e3;  // less work than this is one group
constexpr int64_t kGroupsPerWorker = 4;
constexpr double kMaxGroupNanoseconds = 0.5e6;  // others get their turn between groups

void RunAttention(const void* const* args, const uint32_t group[3], void* scratch) {
  const AttentionProblem& problem = *static_cast<const AttentionProblem*>(args[0]);
  const int64_t per_group = *static_cast<const uint32_t*>(args[1]);
  const int64_t first = group[0] * per_group, last = std::min(first + per_group, problem.Tiles());
  size_t most = 0;
  const void* last_scratch = nullptr;
  for (int64_t i = first; i < last; ++i) {
    simd::AttentionTile tile = problem.TileAt(i);
    const simd::AttentionFunctions& functions = simd::Best().AttentionOf(tile.dtype);
    const size_t bytes = functions.scratch(tile);
    tile.scratch = bytes <= XPUD_HOST_SCRATCH_BYTES ? scratch : ThreadMemory(bytes);
    tile.same_keys =
        tile.scratch == last_scratch && bytes <= most && problem.KeyHeadOf(i) == problem.KeyHeadOf(i - 1);
    functions.attend(tile);
    last_scratch = tile.scratch;
    most = std::max(most, bytes);
  }
}

void RunGradient(const void* const* args, const uint32_t group[3], void* scratch) {
  const AttentionGradientProblem& problem = *static_cast<const AttentionGradientProblem*>(args[0]);
  const int64_t per_group = *static_cast<const uint32_t*>(args[1]);
  std::byte* const workspace = *static_cast<std::byte* const*>(args[2]);
  const int64_t first = group[0] * per_group, last = std::min(first + per_group, problem.Tasks());
  for (int64_t i = first; i < last; ++i) {
    simd::AttentionGradientTile tile = problem.TaskAt(i, workspace);
    const simd::AttentionFunctions& functions = simd::Best().AttentionOf(tile.dtype);
    const size_t bytes = functions.backward_scratch(tile);
    tile.scratch = bytes <= XPUD_HOST_SCRATCH_BYTES ? scratch : ThreadMemory(bytes);
    functions.attend_backward(tile);
  }
}

void RunSum(const void* const* args, const uint32_t group[3], void*) {
  const AttentionGradientProblem& problem = *static_cast<const AttentionGradientProblem*>(args[0]);
  const int64_t per_group = *static_cast<const uint32_t*>(args[1]);
  std::byte* const workspace = *static_cast<std::byte* const*>(args[2]);
  const int64_t first = group[0] * per_group, last = std::min(first + per_group, problem.Tiles());
  for (int64_t i = first; i < last; ++i) {
    const simd::AttentionGradientSum sum = problem.SumAt(i, workspace);
    simd::Best().AttentionOf(sum.dtype).sum_gradient(sum);
  }
}

bool InPairs(const AttentionProblem& problem) { return simd::Best().AttentionOf(problem.dtype).in_pairs; }

constexpr uint32_t kArgumentSizes[] = {sizeof(AttentionProblem), sizeof(uint32_t)};
constexpr uint32_t kGradientSizes[] = {sizeof(AttentionGradientProblem), sizeof(uint32_t), sizeof(void*)};
constexpr xpud_host_kernel_t kKernels[] = {{"attention", RunAttention, 2, kArgumentSizes},
                                           {"attention_gradient", RunGradient, 3, kGradientSizes},
                                           {"attention_gradient_sum", RunSum, 3, kGradientSizes}};
class HostAttention : public Planner {
 public:
  HostAttention(KernelStore& store, int workers)
      : workers_(std::max(1, workers)),
        kernel_(store.Add({ModuleImage::Format::kHost, std::string(kAttentionModule)}, "attention")),
        gradient_(store.AddEntry(*kernel_, "attention_gradient")),
        sum_(store.AddEntry(*kernel_, "attention_gradient_sum")) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override {
    if (call.row->family == ops::Family::kAttentionBackward) return PlanGradient(call, workspace, launches);
    ASSIGN_OR_RETURN(const AttentionProblem problem, ReadAttention(call));
    if (problem.Empty()) return Readiness::kReady;
    const Cut cut = CutOf(problem.Tiles(), problem.Nanoseconds(InPairs(problem)));
    Launch& launch = launches.Add();
    launch.Reset(kernel_, cut.groups);
    launch.Push(problem);
    launch.Push(cut.per_group);
    return Readiness::kReady;
  }

 private:
  // How the units of some work are shared by groups.
  struct Cut {
    uint32_t groups, per_group;
  };
  Cut CutOf(int64_t units, double nanoseconds) const {
    const int64_t most = workers_ == 1 ? 1 : kGroupsPerWorker * workers_;
    const int64_t wanted =
        std::clamp<int64_t>(static_cast<int64_t>(nanoseconds / kGroupNanoseconds), 1, most);
    const double unit = std::max(nanoseconds, 1.0) / static_cast<double>(units);
    const auto fitting = static_cast<int64_t>(kMaxGroupNanoseconds / unit);
    const int64_t per_group = std::clamp<int64_t>(fitting, 1, (units + wanted - 1) / wanted);
    return {static_cast<uint32_t>((units + per_group - 1) / per_group), static_cast<uint32_t>(per_group)};
  }

  absl::StatusOr<Readiness> PlanGradient(const OpCall& call, const Workspace& workspace,
                                         LaunchList& launches) const {
    ASSIGN_OR_RETURN(const AttentionGradientProblem problem, ReadAttentionGradient(call));
    if (problem.batch == 0 || problem.heads == 0) return Readiness::kReady;
    void* memory = nullptr;
    if (const size_t bytes = problem.WorkspaceBytes(); bytes > 0) {
      ASSIGN_OR_RETURN(memory, workspace(bytes));
    }
    const auto launch = [&](const Kernel* kernel, const Cut& cut) {
      Launch& added = launches.Add();
      added.Reset(kernel, cut.groups);
      added.Push(problem);
      added.Push(cut.per_group);
      added.Push(memory);
    };
    if (problem.Tasks() > 0)
      launch(gradient_, CutOf(problem.Tasks(), problem.GradientNanoseconds(InPairs(problem))));
    if (problem.Tiles() > 0 && problem.depth > 0)
      launch(sum_, CutOf(problem.Tiles(), static_cast<double>(problem.Parts() * problem.GradientElements())));
    return Readiness::kReady;
  }

  const int64_t workers_;
  const Kernel *const kernel_, *const gradient_, *const sum_;
};

}  // namespace

constinit const xpud_host_module_t kHostModule = {XPUD_HOST_MODULE_VERSION, std::size(kKernels), kKernels};

}  // namespace attention

std::unique_ptr<Planner> CreateHostAttention(KernelStore& store, int workers) {
  return std::make_unique<attention::HostAttention>(store, workers);
}

}  // namespace xpud::kernels
