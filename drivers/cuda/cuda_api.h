// The part of CUDA's driver API that we use. Declared here because the library is opened by dlopen and its
// header may be absent. Names, values and layouts are those of cuda.h; the `_v2` symbols are what its macros
// select.
#pragma once

#include <cstddef>
#include <cstdint>

namespace xpud::drivers::cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUlinkState = struct CUlinkState_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUgraphNode = struct CUgraphNode_st*;
using CUmemGenericAllocationHandle = unsigned long long;

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_INVALID_PTX = 218,
  CUDA_ERROR_NVLINK_UNCORRECTABLE = 220,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_CONTAINED = 226,
  CUDA_ERROR_INVALID_SOURCE = 300,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_TENSOR_MEMORY_LEAK = 721,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_MPS_RPC_FAILURE = 806,
  CUDA_ERROR_MPS_CLIENT_TERMINATED = 810,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
  CU_DEVICE_ATTRIBUTE_ECC_ENABLED = 32,
  CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
  CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED = 103,
};

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
};

enum CUjit_option : int {
  CU_JIT_INFO_LOG_BUFFER = 3,
  CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
};
enum CUjitInputType : int { CU_JIT_INPUT_PTX = 1 };
enum CUpointer_attribute : int { CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2 };
enum CUmemorytype : int { CU_MEMORYTYPE_HOST = 1, CU_MEMORYTYPE_UNIFIED = 4 };

inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_STREAM_WAIT_VALUE_EQ = 1;
inline constexpr unsigned CU_STREAM_WRITE_VALUE_DEFAULT = 0;  // the write follows a system-wide barrier
inline constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1;
inline constexpr unsigned CU_MEMHOSTALLOC_DEVICEMAP = 2;
inline constexpr unsigned CU_MEMHOSTREGISTER_PORTABLE = 1;
inline constexpr unsigned CU_MEMHOSTREGISTER_DEVICEMAP = 2;

enum CUstreamCaptureMode : int { CU_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum CUstreamCaptureStatus : int { CU_STREAM_CAPTURE_STATUS_NONE = 0, CU_STREAM_CAPTURE_STATUS_ACTIVE = 1 };

enum CUmemAllocationHandleType : int { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 };
enum CUmemAllocationType : int { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum CUmemLocationType : int { CU_MEM_LOCATION_TYPE_DEVICE = 1 };
enum CUmemAccess_flags : int {
  CU_MEM_ACCESS_FLAGS_PROT_NONE = 0,
  CU_MEM_ACCESS_FLAGS_PROT_READ = 1,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
};

struct CUuuid {
  char bytes[16];
};

struct CUmemLocation {
  CUmemLocationType type;
  int id;
};

struct CUmemAllocationProp {
  CUmemAllocationType type;
  CUmemAllocationHandleType requestedHandleTypes;
  CUmemLocation location;
  void* win32HandleMetaData;
  struct {
    unsigned char compressionType;
    unsigned char gpuDirectRDMACapable;
    unsigned short usage;
    unsigned char reserved[4];
  } allocFlags;
};
static_assert(sizeof(CUmemAllocationProp) == 32);

struct CUmemAccessDesc {
  CUmemLocation location;
  CUmemAccess_flags flags;
};
static_assert(sizeof(CUmemAccessDesc) == 12);

struct CUDA_MEMCPY3D {
  size_t srcXInBytes, srcY, srcZ, srcLOD;
  CUmemorytype srcMemoryType;
  const void* srcHost;
  CUdeviceptr srcDevice;
  void* srcArray;
  void* reserved0;
  size_t srcPitch, srcHeight;
  size_t dstXInBytes, dstY, dstZ, dstLOD;
  CUmemorytype dstMemoryType;
  void* dstHost;
  CUdeviceptr dstDevice;
  void* dstArray;
  void* reserved1;
  size_t dstPitch, dstHeight;
  size_t WidthInBytes, Height, Depth;
};
static_assert(sizeof(CUDA_MEMCPY3D) == 200);

// X(name, symbol, parameters...): the functions that a usable library must have.
#define XPUD_CUDA_FUNCTIONS(X)                                                                              \
  X(cuDeviceGet, cuDeviceGet, CUdevice*, int)                                                               \
  X(cuDeviceGetName, cuDeviceGetName, char*, int, CUdevice)                                                 \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, CUuuid*, CUdevice)                                                 \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, size_t*, CUdevice)                                               \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, int*, CUdevice_attribute, CUdevice)                         \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, char*, int, CUdevice)                                         \
  X(cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, int*, CUdevice, CUdevice)                                 \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, CUcontext*, CUdevice)                               \
  X(cuCtxSetCurrent, cuCtxSetCurrent, CUcontext)                                                            \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, int*, int*)                                   \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, CUstream*, unsigned, int)                       \
  X(cuStreamDestroy, cuStreamDestroy_v2, CUstream)                                                          \
  X(cuStreamQuery, cuStreamQuery, CUstream)                                                                 \
  X(cuStreamWaitValue32, cuStreamWaitValue32_v2, CUstream, CUdeviceptr, uint32_t, unsigned)                 \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2, CUstream, CUdeviceptr, uint32_t, unsigned)               \
  X(cuStreamWriteValue64, cuStreamWriteValue64_v2, CUstream, CUdeviceptr, uint64_t, unsigned)               \
  X(cuLaunchKernel, cuLaunchKernel, CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, CUstream, void**, void**)                                                                     \
  X(cuMemAlloc, cuMemAlloc_v2, CUdeviceptr*, size_t)                                                        \
  X(cuMemFree, cuMemFree_v2, CUdeviceptr)                                                                   \
  X(cuMemHostAlloc, cuMemHostAlloc, void**, size_t, unsigned)                                               \
  X(cuMemFreeHost, cuMemFreeHost, void*)                                                                    \
  X(cuMemHostRegister, cuMemHostRegister_v2, void*, size_t, unsigned)                                       \
  X(cuMemHostUnregister, cuMemHostUnregister, void*)                                                        \
  X(cuMemCreate, cuMemCreate, CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, uint64_t)  \
  X(cuMemRelease, cuMemRelease, CUmemGenericAllocationHandle)                                               \
  X(cuMemAddressReserve, cuMemAddressReserve, CUdeviceptr*, size_t, size_t, CUdeviceptr, uint64_t)          \
  X(cuMemAddressFree, cuMemAddressFree, CUdeviceptr, size_t)                                                \
  X(cuMemMap, cuMemMap, CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, uint64_t)                \
  X(cuMemUnmap, cuMemUnmap, CUdeviceptr, size_t)                                                            \
  X(cuMemSetAccess, cuMemSetAccess, CUdeviceptr, size_t, const CUmemAccessDesc*, size_t)                    \
  X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, void*, CUmemGenericAllocationHandle,        \
    CUmemAllocationHandleType, uint64_t)                                                                    \
  X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, CUmemGenericAllocationHandle*, void*,   \
    CUmemAllocationHandleType)                                                                              \
  X(cuPointerGetAttribute, cuPointerGetAttribute, void*, CUpointer_attribute, CUdeviceptr)                  \
  X(cuMemcpyAsync, cuMemcpyAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)                               \
  X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D*, CUstream)                                    \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, void*, CUdeviceptr, size_t)                                              \
  X(cuMemsetD8Async, cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)                         \
  X(cuMemsetD16Async, cuMemsetD16Async, CUdeviceptr, unsigned short, size_t, CUstream)                      \
  X(cuMemsetD32Async, cuMemsetD32Async, CUdeviceptr, unsigned, size_t, CUstream)                            \
  X(cuModuleLoadData, cuModuleLoadData, CUmodule*, const void*)                                             \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx, CUmodule*, const void*, unsigned, CUjit_option*, void**)        \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, CUstream, CUstreamCaptureMode)                           \
  X(cuStreamEndCapture, cuStreamEndCapture, CUstream, CUgraph*)                                             \
  X(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_v2, CUstream, CUstreamCaptureStatus*, uint64_t*,         \
    CUgraph*, const CUgraphNode**, size_t*)                                                                 \
  X(cuGraphGetNodes, cuGraphGetNodes, CUgraph, CUgraphNode*, size_t*)                                       \
  X(cuGraphDestroy, cuGraphDestroy, CUgraph)                                                                \
  X(cuGraphInstantiate, cuGraphInstantiateWithFlags, CUgraphExec*, CUgraph, unsigned long long)             \
  X(cuGraphExecDestroy, cuGraphExecDestroy, CUgraphExec)                                                    \
  X(cuGraphLaunch, cuGraphLaunch, CUgraphExec, CUstream)                                                    \
  X(cuModuleUnload, cuModuleUnload, CUmodule)                                                               \
  X(cuModuleGetFunction, cuModuleGetFunction, CUfunction*, CUmodule, const char*)                           \
  X(cuModuleGetFunctionCount, cuModuleGetFunctionCount, unsigned*, CUmodule)                                \
  X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions, CUfunction*, unsigned, CUmodule)                \
  X(cuModuleGetGlobal, cuModuleGetGlobal_v2, CUdeviceptr*, size_t*, CUmodule, const char*)                  \
  X(cuFuncGetName, cuFuncGetName, const char**, CUfunction)                                                 \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo, CUfunction, size_t, size_t*, size_t*)                           \
  X(cuFuncGetAttribute, cuFuncGetAttribute, int*, CUfunction_attribute, CUfunction)                         \
  X(cuFuncSetAttribute, cuFuncSetAttribute, CUfunction, CUfunction_attribute, int)                          \
  X(cuFuncLoad, cuFuncLoad, CUfunction)                                                                     \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor, int*,         \
    CUfunction, int, size_t)                                                                                \
  X(cuLinkCreate, cuLinkCreate_v2, unsigned, CUjit_option*, void**, CUlinkState*)                           \
  X(cuLinkAddData, cuLinkAddData_v2, CUlinkState, CUjitInputType, void*, size_t, const char*, unsigned,     \
    CUjit_option*, void**)                                                                                  \
  X(cuLinkComplete, cuLinkComplete, CUlinkState, void**, size_t*)                                           \
  X(cuLinkDestroy, cuLinkDestroy, CUlinkState)                                                              \
  X(cuGetErrorName, cuGetErrorName, CUresult, const char**)                                                 \
  X(cuGetErrorString, cuGetErrorString, CUresult, const char**)

}  // namespace xpud::drivers::cuda
