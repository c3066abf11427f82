#include "kernels/library/cublaslt/cublaslt_kernels.h"

#include <memory>
#include <utility>

#include "kernels/library/cublaslt/cublaslt_api.h"
#include "kernels/library/cublaslt/cublaslt_plan.h"
#include "kernels/library/host_modules.h"
#include "kernels/library/plan_table.h"
#include "proto/base/mutex.h"

namespace xpud::kernels::cublaslt {
namespace {

constexpr size_t kMaxPlans = 4096;

template <typename T>
const T& Argument(const void* const* args, int i) {
  return *static_cast<const T*>(args[i]);
}

// The library's handles, one for each context, created when first needed. They live as long as the process:
// destroying one needs its context, which may be gone by then.
class Handles {
 public:
  // Returns the handle for `context`, which must be current; nullptr if it cannot be created.
  Handle For(const Api& api, void* context) {
    MutexLock lock(mutex_);
    Handle& handle = handles_[context];
    if (handle == nullptr && api.create(&handle) != Status::kSuccess) handle = nullptr;
    return handle;
  }

 private:
  Mutex mutex_;
  absl::flat_hash_map<void*, Handle> handles_ ABSL_GUARDED_BY(mutex_);
};

// The objects that a call on a list needs.
struct Site {
  const Api* api = nullptr;
  Handle handle = nullptr;
  std::shared_ptr<Plan> plan;
};

ze_result_t Find(const Problem& problem, void* context, Site& site) {
  static auto& handles = *new Handles;
  static auto& plans = *new PlanTable<std::pair<void*, Problem>, Plan>(kMaxPlans);
  const absl::StatusOr<const Api*> api = Api::Get();
  if (!api.ok()) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  site.api = *api;
  site.handle = handles.For(**api, context);
  if (site.handle == nullptr) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  site.plan = plans.Find({context, problem}, [&] {
    return std::make_shared<Plan>(**api, problem, MostWorkspace(problem.matmul));
  });
  return ZE_RESULT_SUCCESS;
}

ze_result_t Run(const void* const* args, const xpud_native_list_t& list) {
  const Problem& problem = Argument<Problem>(args, 3);
  const size_t bytes = Argument<uint64_t>(args, 2);
  Site site;
  if (const ze_result_t result = Find(problem, list.context, site); result != ZE_RESULT_SUCCESS)
    return result;
  Plan::Prepared prepared = site.plan->Prepare(site.handle);
  if (prepared.status == Status::kSuccess && prepared.workspace_bytes > bytes) {
    // The launch was planned for another process's answer.
    site.plan = std::make_shared<Plan>(*site.api, problem, bytes);
    prepared = site.plan->Prepare(site.handle);
  }
  if (prepared.status != Status::kSuccess) return ResultOf(prepared.status);
  return ResultOf(site.plan->Run(site.handle, Argument<matmul::MatmulOperands>(args, 0),
                                 Argument<void*>(args, 1), bytes, list.stream));
}

// The first launch of an algorithm loads its code, which takes up to 60 ms. A recorded launch also loads it,
// and reads no memory, so the addresses only need to look right. An error here occurs again when the product
// is run.
void LoadCode(const Site& site, const Plan::Prepared& prepared, void* stream) {
  alignas(256) static std::byte anywhere[256];
  const matmul::MatmulOperands operands = {anywhere, anywhere, anywhere, anywhere, 1, 1};
  (void)site.plan->Run(site.handle, operands, anywhere, prepared.workspace_bytes, stream);
}

ze_result_t Prepare(const void* const* args, const xpud_native_list_t& list) {
  Site site;
  if (const ze_result_t result = Find(Argument<Problem>(args, 0), list.context, site);
      result != ZE_RESULT_SUCCESS)
    return result;
  const Plan::Prepared prepared = site.plan->Prepare(site.handle);
  *Argument<uint64_t*>(args, 1) = prepared.workspace_bytes;
  if (prepared.status == Status::kSuccess && list.recording != 0) LoadCode(site, prepared, list.stream);
  return ResultOf(prepared.status);
}

void RunProduct(const void* const* args, const uint32_t*, void* scratch) {
  auto& list = *static_cast<xpud_native_list_t*>(scratch);
  list.result = Run(args, list);
}

void RunPrepare(const void* const* args, const uint32_t*, void* scratch) {
  auto& list = *static_cast<xpud_native_list_t*>(scratch);
  list.result = Prepare(args, list);
}

constexpr uint32_t kProductSizes[] = {sizeof(matmul::MatmulOperands), sizeof(void*), sizeof(uint64_t),
                                      sizeof(Problem)};
constexpr uint32_t kPrepareSizes[] = {sizeof(Problem), sizeof(uint64_t*)};
constexpr xpud_host_kernel_t kKernels[] = {{kProduct, RunProduct, 4, kProductSizes},
                                           {kPrepare, RunPrepare, 2, kPrepareSizes}};

}  // namespace

void LoadLibrary() { (void)Api::Get(); }

constinit const xpud_host_module_t kHostModule = {XPUD_HOST_MODULE_VERSION, 2, kKernels};

}  // namespace xpud::kernels::cublaslt
