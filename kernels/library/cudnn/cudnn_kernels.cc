#include "kernels/library/cudnn/cudnn_kernels.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/library/cudnn/cudnn_api.h"
#include "kernels/library/cudnn/cudnn_plan.h"
#include "kernels/library/host_modules.h"
#include "kernels/library/plan_table.h"
#include "proto/base/mutex.h"

namespace xpud::kernels::cudnn {
namespace {

using convolution::ConvolutionOperands;

constexpr size_t kMaxPlans = 4096;

template <typename T>
const T& Argument(const void* const* args, int i) {
  return *static_cast<const T*>(args[i]);
}

// The library's handles, each used by one thread at a time. They live as long as the process: destroying one
// needs its context, which may be gone by then.
class Handles {
 public:
  struct Use {
    Handle handle = nullptr;
    void* stream = nullptr;
  };
  // Returns a handle whose stream is `stream`, or one with handle = nullptr if none can be created. `context`
  // must be current.
  Use Take(const Api& api, void* context, void* stream) {
    Use use = TakeIdle(context, stream);
    if (use.handle == nullptr && api.create(&use.handle) != Status::kSuccess) return {};
    if (use.stream != stream && api.set_stream(use.handle, stream) != Status::kSuccess) {
      Return(context, use);
      return {};
    }
    use.stream = stream;
    return use;
  }
  void Return(void* context, const Use& use) {
    MutexLock lock(mutex_);
    idle_[context].push_back(use);
  }

 private:
  Use TakeIdle(void* context, void* stream) {
    MutexLock lock(mutex_);
    std::vector<Use>& idle = idle_[context];
    if (idle.empty()) return {};
    auto chosen = std::ranges::find(idle, stream, &Use::stream);
    if (chosen == idle.end()) chosen = idle.end() - 1;
    const Use use = *chosen;
    idle.erase(chosen);
    return use;
  }

  Mutex mutex_;
  std::map<void*, std::vector<Use>> idle_ ABSL_GUARDED_BY(mutex_);  // by context
};

// The objects that a call on a list needs.
class Site {
 public:
  Site(const Problem& problem, const xpud_native_list_t& list) : context_(list.context) {
    const absl::StatusOr<const Api*> api = Api::Get();
    if (!api.ok()) {
      result_ = ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
      return;
    }
    api_ = *api;
    use_ = All().Take(*api_, context_, list.stream);
    if (use_.handle == nullptr) result_ = ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    static auto& plans = *new PlanTable<std::pair<void*, Problem>, Plan>(kMaxPlans);
    plan_ = plans.Find({context_, problem},
                       [&] { return std::make_shared<Plan>(*api_, problem, kMaxWorkspace); });
  }
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;
  ~Site() {
    if (use_.handle != nullptr) All().Return(context_, use_);
  }

  ze_result_t result() const { return result_; }
  Plan::Prepared Prepare() { return plan_->Prepare(use_.handle); }
  // Replaces the plan by one with at most this workspace.
  void Limit(const Problem& problem, size_t bytes) { plan_ = std::make_shared<Plan>(*api_, problem, bytes); }
  Status Run(const ConvolutionOperands& operands, void* workspace) {
    return plan_->Run(use_.handle, operands, workspace);
  }

 private:
  static Handles& All() {
    static auto& handles = *new Handles;
    return handles;
  }

  const Api* api_ = nullptr;
  void* const context_;
  Handles::Use use_;
  std::shared_ptr<Plan> plan_;
  ze_result_t result_ = ZE_RESULT_SUCCESS;
};

ze_result_t Run(const void* const* args, const xpud_native_list_t& list) {
  const Problem& problem = Argument<Problem>(args, 3);
  const size_t bytes = Argument<uint64_t>(args, 2);
  Site site(problem, list);
  if (site.result() != ZE_RESULT_SUCCESS) return site.result();
  Plan::Prepared prepared = site.Prepare();
  if (prepared.status == Status::kSuccess && prepared.workspace_bytes > bytes) {
    // The launch was planned for another process's answer.
    site.Limit(problem, bytes);
    prepared = site.Prepare();
  }
  if (prepared.status != Status::kSuccess) return ResultOf(prepared.status);
  return ResultOf(site.Run(Argument<ConvolutionOperands>(args, 0), Argument<void*>(args, 1)));
}

// The first launch of an engine loads its code. A recorded launch also loads it, and reads no memory, so the
// addresses only need to look right. An error here occurs again when the convolution is run.
void LoadCode(Site& site) {
  alignas(256) static std::byte anywhere[256];
  (void)site.Run({anywhere, anywhere, nullptr, anywhere}, anywhere);
}

ze_result_t Prepare(const void* const* args, const xpud_native_list_t& list) {
  Site site(Argument<Problem>(args, 0), list);
  if (site.result() != ZE_RESULT_SUCCESS) return site.result();
  const Plan::Prepared prepared = site.Prepare();
  *Argument<uint64_t*>(args, 1) = prepared.workspace_bytes;
  if (prepared.status == Status::kSuccess && list.recording != 0) LoadCode(site);
  return ResultOf(prepared.status);
}

void RunConvolution(const void* const* args, const uint32_t*, void* scratch) {
  auto& list = *static_cast<xpud_native_list_t*>(scratch);
  list.result = Run(args, list);
}

void RunPrepare(const void* const* args, const uint32_t*, void* scratch) {
  auto& list = *static_cast<xpud_native_list_t*>(scratch);
  list.result = Prepare(args, list);
}

constexpr uint32_t kConvolutionSizes[] = {sizeof(ConvolutionOperands), sizeof(void*), sizeof(uint64_t),
                                          sizeof(Problem)};
constexpr uint32_t kPrepareSizes[] = {sizeof(Problem), sizeof(uint64_t*)};
constexpr xpud_host_kernel_t kKernels[] = {{kConvolve, RunConvolution, 4, kConvolutionSizes},
                                           {kPrepare, RunPrepare, 2, kPrepareSizes}};

}  // namespace

constinit const xpud_host_module_t kHostModule = {XPUD_HOST_MODULE_VERSION, 2, kKernels};

}  // namespace xpud::kernels::cudnn
