#include "kernels/dispatch/kernel_library.h"

#include "absl/strings/str_cat.h"
#include "kernels/api/planner.h"
#include "kernels/compiler/backend.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/compact.h"
#include "kernels/families/concat.h"
#include "kernels/families/convolution.h"
#include "kernels/families/ctc_loss.h"
#include "kernels/families/flip.h"
#include "kernels/families/foreach.h"
#include "kernels/families/foreach_reduce.h"
#include "kernels/families/fused.h"
#include "kernels/families/gather.h"
#include "kernels/families/grid_sample.h"
#include "kernels/families/layer_norm.h"
#include "kernels/families/layer_norm_backward.h"
#include "kernels/families/map.h"
#include "kernels/families/max_pool.h"
#include "kernels/families/misbehaving.h"
#include "kernels/families/nll.h"
#include "kernels/families/reduce.h"
#include "kernels/families/resample.h"
#include "kernels/families/scan.h"
#include "kernels/families/scatter.h"
#include "kernels/families/search.h"
#include "kernels/families/segments.h"
#include "kernels/families/softmax.h"
#include "kernels/families/sort.h"
#include "kernels/families/unfold.h"
#include "kernels/library/planners.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

absl::Status CheckLaunches(const LaunchList& launches, const GroupLimits& most_groups) {
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& launch = launches[i];
    const Kernel& kernel = launch.kernel();
    if (launch.overflowed()) [[unlikely]]
      return absl::InternalError(
          absl::StrCat("kernel ", kernel.entry, ": more arguments than a launch holds"));
    for (size_t axis = 0; axis < most_groups.size(); ++axis) {
      if (launch.groups()[axis] > most_groups[axis]) [[unlikely]] {
        return absl::UnimplementedError(absl::StrCat(
            "the tensors are too large: kernel ", kernel.entry, " needs more groups of threads than the ",
            most_groups[axis], " that the device runs in one launch"));
      }
    }
    if (kernel.signature != kNoSignature && kernel.signature != launch.signature()) [[unlikely]] {
      return absl::InternalError(
          absl::StrCat("kernel ", kernel.entry, ": planned with other arguments than it was compiled for"));
    }
  }
  return absl::OkStatus();
}

class KernelLibrary::Impl {
 public:
  explicit Impl(const Options& options)
      : most_groups_(options.most_groups),
        cache_(options.compiler, options.on_ready, options.assemble, options.most_kernels, options.forget) {
    Planner& maps = *planners_.emplace_back(std::make_unique<MapPlanner>(cache_));
    Planner& convolutions = *planners_.emplace_back(std::make_unique<ConvolutionPlanner>(cache_));
    if (options.target == Target::kHost) {
      planners_.push_back(CreateOnednnMatmul(cache_, options.workers, options.elsewhere));
      planners_.push_back(
          CreateOnednnConvolution(cache_, maps, convolutions, options.workers, options.elsewhere));
      planners_.push_back(CreateHostAttention(cache_, options.workers));
    }
    if (options.target == Target::kNvptx) {
      planners_.push_back(CreateCublasltMatmul(cache_, options.run_host_kernel));
      if (options.run_host_kernel != nullptr)
        planners_.push_back(CreateCudnnConvolution(cache_, maps, convolutions, options.run_host_kernel));
      planners_.push_back(CreateGpuAttention(cache_, options.processor, options.workers));
    }
    planners_.push_back(std::make_unique<CompactPlanner>(cache_));
    planners_.push_back(std::make_unique<ConcatPlanner>(cache_));
    planners_.push_back(std::make_unique<CtcPlanner>(cache_));
    planners_.push_back(std::make_unique<FlipPlanner>(maps));
    planners_.push_back(std::make_unique<ForeachPlanner>(cache_));
    planners_.push_back(std::make_unique<ForeachReducePlanner>(cache_));
    planners_.push_back(std::make_unique<FusedPlanner>(cache_));
    planners_.push_back(std::make_unique<ReducePlanner>(cache_));
    planners_.push_back(std::make_unique<GatherPlanner>(cache_));
    planners_.push_back(std::make_unique<GridSamplePlanner>(cache_));
    planners_.push_back(std::make_unique<LayerNormBackwardPlanner>(cache_));
    planners_.push_back(std::make_unique<MaxPoolPlanner>(cache_));
    planners_.push_back(std::make_unique<NllPlanner>(cache_));
    planners_.push_back(std::make_unique<ResamplePlanner>(cache_));
    planners_.push_back(std::make_unique<ScanPlanner>(cache_));
    planners_.push_back(std::make_unique<ScatterPlanner>(cache_));
    planners_.push_back(std::make_unique<SearchPlanner>(cache_));
    planners_.push_back(std::make_unique<SegmentsPlanner>(cache_));
    planners_.push_back(std::make_unique<SoftmaxPlanner>(cache_));
    planners_.push_back(std::make_unique<SortPlanner>(cache_));
    planners_.push_back(std::make_unique<LayerNormPlanner>(cache_));
    planners_.push_back(std::make_unique<UnfoldPlanner>(cache_));
    if (options.test_kernels) planners_.push_back(std::make_unique<MisbehavingPlanner>(cache_));
    for (size_t f = 0; f < by_family_.size(); ++f) {
      for (const auto& planner : planners_) {
        if (planner->Serves(static_cast<ops::Family>(f))) by_family_[f] = planner.get();
      }
    }
  }

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
    launches.Clear();
    Planner* const planner = by_family_[static_cast<size_t>(call.row->family)];
    if (planner == nullptr) {
      const bool test = call.row->family == ops::Family::kTest;
      return absl::UnimplementedError(absl::StrCat(std::string(call.row->aten),
                                                   test ? " is a test's; start the daemon with --test-kernels"
                                                        : ": this device has no kernel for it"));
    }
    absl::StatusOr<Readiness> readiness = planner->Plan(call, workspace, launches);
    if (absl::Status status = CheckLaunches(launches, most_groups_); !status.ok()) [[unlikely]] {
      launches.Clear();
      return status;
    }
    return readiness;
  }

  KernelCache& cache() { return cache_; }

 private:
  std::vector<std::unique_ptr<Planner>> planners_;
  std::array<Planner*, ops::kNumFamilies> by_family_{};
  const GroupLimits most_groups_;
  KernelCache cache_;  // last: then no other thread uses the planners and their skeletons
};

KernelLibrary::KernelLibrary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelLibrary::~KernelLibrary() = default;

absl::StatusOr<std::unique_ptr<KernelLibrary>> KernelLibrary::Create(const Options& options) {
  if (options.target == Target::kHost) RETURN_IF_ERROR(CheckHostCpu());
  Options complete = options;
  const CodeTarget target(options.target, options.processor, options.has_doubles);
  if (complete.compiler == nullptr) {
    ASSIGN_OR_RETURN(complete.compiler, KernelCompiler::Create({.target = target,
                                                                .assembles = options.assemble != nullptr,
                                                                .cache_directory = options.cache_directory,
                                                                .cache_bytes = options.cache_bytes}));
  }
  XPUD_CHECK(complete.compiler->target() == target);
  auto impl = std::make_unique<Impl>(complete);
  RETURN_IF_ERROR(impl->cache().Start());
  return std::unique_ptr<KernelLibrary>(new KernelLibrary(std::move(impl)));
}

absl::StatusOr<Readiness> KernelLibrary::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  return impl_->Plan(call, workspace, launches);
}

KernelCounters KernelLibrary::counters() const { return impl_->cache().counters(); }

void KernelLibrary::SetLimits(size_t most_kernels, uint64_t cache_bytes) {
  impl_->cache().SetLimits(most_kernels, cache_bytes);
}

void KernelLibrary::WaitForCompiles() { impl_->cache().WaitForCompiles(); }

}  // namespace xpud::kernels
