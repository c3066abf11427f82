#include "kernels/library/cublaslt/cublaslt_api.h"

#include "absl/status/status.h"
#include "kernels/library/cuda/find_library.h"

namespace xpud::kernels::cublaslt {
namespace {

using cuda::Fetch;

constexpr const char* kVersions[] = {"13", "12"};
constexpr const char* kWheels[] = {"nvidia/cu13/lib", "nvidia/cublas/lib"};
constexpr cuda::Library kLibrary = {"libcublasLt.so", kVersions, "XPUD_CUBLASLT", kWheels};

absl::StatusOr<const Api*> Load() {
  const absl::StatusOr<void*> library = cuda::Open(kLibrary);
  if (!library.ok()) return library.status();
  static Api api;
  const bool complete = Fetch(*library, "cublasLtCreate", api.create) &&
                        Fetch(*library, "cublasLtMatrixLayoutCreate", api.layout_create) &&
                        Fetch(*library, "cublasLtMatrixLayoutDestroy", api.layout_destroy) &&
                        Fetch(*library, "cublasLtMatrixLayoutSetAttribute", api.layout_set) &&
                        Fetch(*library, "cublasLtMatmulDescCreate", api.desc_create) &&
                        Fetch(*library, "cublasLtMatmulDescDestroy", api.desc_destroy) &&
                        Fetch(*library, "cublasLtMatmulDescSetAttribute", api.desc_set) &&
                        Fetch(*library, "cublasLtMatmulPreferenceCreate", api.preference_create) &&
                        Fetch(*library, "cublasLtMatmulPreferenceDestroy", api.preference_destroy) &&
                        Fetch(*library, "cublasLtMatmulPreferenceSetAttribute", api.preference_set) &&
                        Fetch(*library, "cublasLtMatmulAlgoGetHeuristic", api.heuristics) &&
                        Fetch(*library, "cublasLtMatmul", api.matmul);
  if (!complete) return absl::NotFoundError("cuBLASLt lacks a function: it is older than 12");
  return &api;
}

}  // namespace

absl::StatusOr<const Api*> Api::Get() {
  static const absl::StatusOr<const Api*> loaded = Load();
  return loaded;
}

}  // namespace xpud::kernels::cublaslt
