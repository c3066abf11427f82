// The planner and the kernel of kAttention on the host.
#include <algorithm>
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

void RunAttention(const void* const* args, const uint32_t group[3], void* scratch) {
  const AttentionProblem& problem = *static_cast<const AttentionProblem*>(args[0]);
  const int64_t per_group = *static_cast<const uint32_t*>(args[1]);
  const int64_t first = group[0] * per_group, last = std::min(first + per_group, problem.Tiles());
  const simd::Functions& functions = simd::Best();
  for (int64_t i = first; i < last; ++i) {
    simd::AttentionTile tile = problem.TileAt(i);
    const size_t bytes = functions.attend_scratch(tile);
    tile.scratch = bytes <= XPUD_HOST_SCRATCH_BYTES ? scratch : ThreadMemory(bytes);
    functions.attend(tile);
  }
}

constexpr uint32_t kArgumentSizes[] = {sizeof(AttentionProblem), sizeof(uint32_t)};
constexpr xpud_host_kernel_t kKernels[] = {{"attention", RunAttention, 2, kArgumentSizes}};
class HostAttention : public Planner {
 public:
  HostAttention(KernelStore& store, int workers)
      : workers_(std::max(1, workers)),
        kernel_(store.Add({ModuleImage::Format::kHost, std::string(kAttentionModule)}, "attention")) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kAttention; }

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace, LaunchList& launches) override {
    ASSIGN_OR_RETURN(const AttentionProblem problem, ReadAttention(call));
    if (problem.Empty()) return Readiness::kReady;
    const int64_t most = workers_ == 1 ? 1 : kGroupsPerWorker * workers_;
    const int64_t wanted =
        std::clamp<int64_t>(static_cast<int64_t>(problem.Nanoseconds() / kGroupNanoseconds), 1, most);
    const int64_t tiles = problem.Tiles(), per_group = (tiles + wanted - 1) / wanted;
    Launch& launch = launches.Add();
    launch.Reset(kernel_, static_cast<uint32_t>((tiles + per_group - 1) / per_group));
    launch.Push(problem);
    launch.Push(static_cast<uint32_t>(per_group));
    return Readiness::kReady;
  }

 private:
  const int64_t workers_;
  const Kernel* const kernel_;
};

}  // namespace

constinit const xpud_host_module_t kHostModule = {XPUD_HOST_MODULE_VERSION, 1, kKernels};

}  // namespace attention

std::unique_ptr<Planner> CreateHostAttention(KernelStore& store, int workers) {
  return std::make_unique<attention::HostAttention>(store, workers);
}

}  // namespace xpud::kernels
