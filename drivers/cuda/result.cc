#include "drivers/cuda/result.h"

namespace xpud::drivers::cuda {

bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
      return true;
    default:  // stack error, illegal instruction, misaligned address, address space, program counter
      return result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED;
  }
}

ze_result_t ToZe(CUresult result) {
  if (IsSticky(result)) return ZE_RESULT_ERROR_DEVICE_LOST;
  switch (result) {
    case CUDA_SUCCESS:
      return ZE_RESULT_SUCCESS;
    case CUDA_ERROR_NOT_READY:
      return ZE_RESULT_NOT_READY;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
      return ZE_RESULT_ERROR_UNINITIALIZED;
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
      return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return ZE_RESULT_ERROR_INVALID_NATIVE_BINARY;
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
      return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    case CUDA_ERROR_UNKNOWN:
      return ZE_RESULT_ERROR_UNKNOWN;
    case CUDA_ERROR_NOT_PERMITTED:
      return ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS;
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER:
      return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    default:
      return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  }
}

}  // namespace xpud::drivers::cuda
