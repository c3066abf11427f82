#include "kernels/dispatch/kernel_library.h"

#include <array>
#include <initializer_list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/api/planner.h"
#include "kernels/compiler/backend.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/planners.h"
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
    MakeOwnPlanners();
    if (!options.test_kernels) by_family_[static_cast<size_t>(ops::Family::kTest)] = nullptr;
    if (options.target == Target::kHost) UseHostLibraries(options);
    if (options.target == Target::kNvptx) UseGpuLibraries(options);
  }

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches,
                                 KernelOwner* owner) {
    launches.Clear();
    cache_.ServeFor(owner);
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

  void Prepare(const ops::KernelOfCall& call, KernelOwner* owner) {
    cache_.ServeFor(owner);
    Of(ops::Family::kLoop).Prepare(call);
  }

  KernelCache& cache() { return cache_; }

 private:
  using Families = std::initializer_list<ops::Family>;
  static constexpr Families kConvolutions = {ops::Family::kConvolution, ops::Family::kConvolutionInput,
                                             ops::Family::kConvolutionWeight};
  static constexpr Families kAttentions = {ops::Family::kAttention, ops::Family::kTrainingAttention,
                                           ops::Family::kAttentionBackward};

  void MakeOwnPlanners() {
    std::unordered_map<PlannerFactory, Planner*> made = {{nullptr, nullptr}};
    for (size_t f = 0; f < by_family_.size(); ++f) {
      const auto [planner, is_new] = made.try_emplace(*kPlanners[f]);
      if (is_new) planner->second = planners_.emplace_back((*kPlanners[f])(cache_)).get();
      by_family_[f] = planner->second;
    }
  }

  void UseHostLibraries(const Options& options) {
    Use({ops::Family::kMatmul}, CreateOnednnMatmul(cache_, options.workers, options.elsewhere));
    Use(kConvolutions, CreateOnednnConvolution(cache_, Of(ops::Family::kMap), Of(ops::Family::kConvolution),
                                               options.workers, options.elsewhere));
    Use(kAttentions, CreateHostAttention(cache_, options.workers));
  }

  void UseGpuLibraries(const Options& options) {
    Use({ops::Family::kMatmul}, CreateCublasltMatmul(cache_, options.run_host_kernel,
                                                     {options.float_operations, options.half_operations}));
    if (options.run_host_kernel != nullptr) {
      Use(kConvolutions, CreateCudnnConvolution(cache_, Of(ops::Family::kMap), Of(ops::Family::kConvolution),
                                                options.run_host_kernel));
    }
    Use(kAttentions, CreateGpuAttention(cache_, options.processor, options.workers));
  }

  // Plans these families by `planner` from now on. The planner that they had lives on.
  void Use(Families families, std::unique_ptr<Planner> planner) {
    for (const ops::Family family : families) by_family_[static_cast<size_t>(family)] = planner.get();
    planners_.push_back(std::move(planner));
  }

  Planner& Of(ops::Family family) { return *by_family_[static_cast<size_t>(family)]; }

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

absl::StatusOr<Readiness> KernelLibrary::Plan(const OpCall& call, Workspace workspace, LaunchList& launches,
                                              KernelOwner* owner) {
  return impl_->Plan(call, workspace, launches, owner);
}

void KernelLibrary::Prepare(const ops::KernelOfCall& call, KernelOwner* owner) {
  impl_->Prepare(call, owner);
}

KernelCounters KernelLibrary::counters() const { return impl_->cache().counters(); }

void KernelLibrary::SetLimits(size_t most_kernels, uint64_t cache_bytes) {
  impl_->cache().SetLimits(most_kernels, cache_bytes);
}

void KernelLibrary::WaitForCompiles() { impl_->cache().WaitForCompiles(); }

}  // namespace xpud::kernels
