#include "kernels/library/cudnn/cudnn_api.h"

#include "absl/status/status.h"
#include "kernels/library/cublaslt/cublaslt_api.h"
#include "kernels/library/cuda/find_library.h"

namespace xpud::kernels::cudnn {
namespace {

using cuda::Fetch;

constexpr const char* kVersions[] = {"9"};
constexpr const char* kWheels[] = {"nvidia/cudnn/lib"};
constexpr cuda::Library kLibrary = {"libcudnn.so", kVersions, "XPUD_CUDNN", kWheels};
// It compiles some engines when first used. Without it, cuDNN offers others.
constexpr const char* kCompilerVersions[] = {"13", "12"};
constexpr const char* kCompilerWheels[] = {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"};
constexpr cuda::Library kCompiler = {"libnvrtc.so", kCompilerVersions, "XPUD_NVRTC", kCompilerWheels};

absl::StatusOr<const Api*> Load() {
  // cuDNN asks the dynamic linker for these by name, which finds what is loaded already.
  (void)cublaslt::Api::Get();
  (void)cuda::Open(kCompiler);
  const absl::StatusOr<void*> library = cuda::Open(kLibrary);
  if (!library.ok()) return library.status();
  static Api api;
  const bool complete = Fetch(*library, "cudnnCreate", api.create) &&
                        Fetch(*library, "cudnnSetStream", api.set_stream) &&
                        Fetch(*library, "cudnnBackendCreateDescriptor", api.descriptor_create) &&
                        Fetch(*library, "cudnnBackendDestroyDescriptor", api.descriptor_destroy) &&
                        Fetch(*library, "cudnnBackendFinalize", api.descriptor_finalize) &&
                        Fetch(*library, "cudnnBackendSetAttribute", api.set) &&
                        Fetch(*library, "cudnnBackendGetAttribute", api.get) &&
                        Fetch(*library, "cudnnBackendExecute", api.execute);
  if (!complete) return absl::NotFoundError("cuDNN lacks a function: it is older than 9");
  return &api;
}

}  // namespace

absl::StatusOr<const Api*> Api::Get() {
  static const absl::StatusOr<const Api*> loaded = Load();
  return loaded;
}

}  // namespace xpud::kernels::cudnn
