// Our Level Zero extensions: what drivers/ offers and daemon/executor uses beyond API 1.4. Each function
// is fetched by name with zeDriverGetExtensionFunctionAddress, and has a fallback where it is absent.
//
// Module formats:
//   HOST    pInputModule points at an xpud_host_module_t, which (with all it points at) must outlive the
//   module;
//           inputSize is sizeof(xpud_host_module_t). The loader's parameter validation refuses this format:
//           use xpudModuleCreate. Its kernels have the calling convention xpud_host_kernel_fn_t.
//           On the CPU device they run as work: group size is 1x1x1, and a group is what a worker claims.
//           On CUDA devices they are how a vendor's library takes part in a list: each launch, whatever its
//           groups, is one call on the appending thread, during the append, with `scratch` pointing at an
//           xpud_native_list_t; what it enqueues on that stream is the launch's work.
//   NATIVE  (ZE_MODULE_FORMAT_NATIVE) on the CPU device an x86-64 ELF relocatable object without undefined
//           symbols, where each global function `f` that has an `uint32_t f.arg_sizes[]` object beside it is
//           a kernel of the convention above; on CUDA devices a cubin, or PTX text.
#pragma once

#include <level_zero/ze_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XPUD_ZE_MODULE_FORMAT_HOST ((ze_module_format_t)0x78700001)
#define XPUD_HOST_MODULE_VERSION 1u

// Where a HOST kernel on a CUDA device enqueues: the list's stream, whose context is current during the call.
typedef struct xpud_native_list_t {
  void* stream;        // CUstream
  void* context;       // CUcontext
  int32_t device;      // CUdevice
  ze_result_t result;  // in: SUCCESS; out: what the append answers
  uint32_t recording;  // 1: the list captures a graph, so that nothing of what is enqueued runs now
} xpud_native_list_t;

// Scratch that every invocation may use: private to the worker, 64-byte aligned, contents undefined.
#define XPUD_HOST_SCRATCH_BYTES ((size_t)4 << 20)

// args[i] points at the value of argument i (as a `void** kernelParams` does); group is this group's x, y, z.
typedef void (*xpud_host_kernel_fn_t)(const void* const* args, const uint32_t group[3], void* scratch);

typedef struct xpud_host_kernel_t {
  const char* name;
  xpud_host_kernel_fn_t run;
  uint32_t num_args;
  const uint32_t* arg_sizes;  // bytes of each argument, num_args of them
} xpud_host_kernel_t;

typedef struct xpud_host_module_t {
  uint32_t version;  // XPUD_HOST_MODULE_VERSION
  uint32_t num_kernels;
  const xpud_host_kernel_t* kernels;
} xpud_host_module_t;

// ze_group_size_t of Level Zero 1.14, which API 1.4 lacks. Passed by value.
typedef struct xpud_group_size_t {
  uint32_t groupSizeX;
  uint32_t groupSizeY;
  uint32_t groupSizeZ;
} xpud_group_size_t;

// "zeCommandListAppendLaunchKernelWithArguments" (the calling convention of Level Zero 1.14): arguments[i]
// points at the value of argument i, copied before the call returns. Does not change the kernel's own
// arguments.
typedef ze_result_t(ZE_APICALL* xpud_pfnAppendLaunchKernelWithArguments_t)(
    ze_command_list_handle_t list, ze_kernel_handle_t kernel, const ze_group_count_t group_counts,
    const xpud_group_size_t group_sizes, const void* const* arguments, const void* next,
    ze_event_handle_t signal_event, uint32_t num_wait_events, ze_event_handle_t* wait_events);

// In the chain of that call (`next`): a launch that may stop early. Its groups run in order, x first, from
// *next_group on, until about `nanoseconds` have passed; *next_group is then the first one that has not run,
// and their number once all have. For lists of the CPU device whose work is done when the append returns.
#define XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC ((ze_structure_type_t)0x78700011)
typedef struct xpud_launch_part_desc_t {
  ze_structure_type_t stype;  // XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC
  const void* pNext;
  uint64_t nanoseconds;
  uint64_t* next_group;
} xpud_launch_part_desc_t;

// "zeCommandListHostSynchronize" (Level Zero 1.6): waits until all that was appended to an immediate list is
// done.
typedef ze_result_t(ZE_APICALL* xpud_pfnCommandListHostSynchronize_t)(ze_command_list_handle_t list,
                                                                      uint64_t timeout_ns);

// "xpudCommandListAppendWriteValue64": stores `value` at `address` (8-byte aligned, release order, system
// scope) after all that was appended before is done.
typedef ze_result_t(ZE_APICALL* xpud_pfnAppendWriteValue64_t)(ze_command_list_handle_t list,
                                                              uint64_t* address, uint64_t value);

// "xpudModuleCreate": zeModuleCreate without the loader in between, whose validation layer knows no HOST
// format.
typedef ze_result_t(ZE_APICALL* xpud_pfnModuleCreate_t)(ze_context_handle_t context,
                                                        ze_device_handle_t device,
                                                        const ze_module_desc_t* desc,
                                                        ze_module_handle_t* module,
                                                        ze_module_build_log_handle_t* log);

// What a back end of our driver library asks of the daemon, so that the daemon need not know which one it is.
#define XPUD_CODE_HOST 0u   // kernels are x86-64 objects
#define XPUD_CODE_PTX 1u    // kernels are PTX, or cubins made of it
#define XPUD_CODE_SPIRV 2u  // kernels are SPIR-V
typedef struct xpud_back_end_t {
  const char* name;         // selects it: XPUD_BACK_ENDS, the daemon's --device
  const char* kind;         // of its devices: "cpu" or "gpu"
  uint32_t code;            // XPUD_CODE_...
  uint32_t own_process;     // 1: each device needs a process of its own, since a fault of its work ends the
                            // process's use of all devices
  uint32_t synchronous;     // 1: work is done when its append returns
  uint32_t append_threads;  // so many threads of a process append faster than one
  uint32_t takes_pageable;  // 1: pageable memory may change once the append of a copy from it has returned
} xpud_back_end_t;

// "xpudDriverGetBackEnd": that of a driver handle; static.
typedef ze_result_t(ZE_APICALL* xpud_pfnDriverGetBackEnd_t)(ze_driver_handle_t driver,
                                                            const xpud_back_end_t** back_end);

// Exported by the library under this name, to be called before or without zeInit: all back ends, whether or
// not there are devices for them. Where the environment has XPUD_BACK_ENDS, zeInit looks for devices of the
// back ends in that comma-separated list only.
#define XPUD_LIST_BACK_ENDS "xpudListBackEnds"
typedef uint32_t(ZE_APICALL* xpud_pfnListBackEnds_t)(const xpud_back_end_t* const** back_ends);

// "zexDriverImportExternalPointer", "zexDriverReleaseImportedPointer" (as Intel's driver has them): maps
// memory that the process already has, a staging memfd for instance, for direct access by all devices of the
// driver. `pointer` and `size` are multiples of the page size.
typedef ze_result_t(ZE_APICALL* xpud_pfnImportExternalPointer_t)(ze_driver_handle_t driver, void* pointer,
                                                                 size_t size);
typedef ze_result_t(ZE_APICALL* xpud_pfnReleaseImportedPointer_t)(ze_driver_handle_t driver, void* pointer);

// "xpudGetLoadReport": a line for each back end that found no device, saying why ("cuda: libcuda.so.1 was not
// found"). Any of our drivers answers for all; the library also exports it under this name, for where zeInit
// found none.
typedef ze_result_t(ZE_APICALL* xpud_pfnGetLoadReport_t)(const char** report);

// In the chain of a ze_device_mem_alloc_desc_t of zeMemAllocDevice: the allocation lies at exactly this
// address, a multiple of XPUD_MEM_ADDRESS_UNIT and of the alignment asked for, or the call allocates nothing
// and answers ZE_RESULT_ERROR_OVERLAPPING_REGIONS. It takes whole units of address space, whatever its size.
// For new memory (exportable or not) and for imported memory, so that another process can have it where this
// one had it. drivers/README.md says which addresses processes leave free.
#define XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC ((ze_structure_type_t)0x78700010)
#define XPUD_MEM_ADDRESS_UNIT ((size_t)64 << 20)
typedef struct xpud_mem_address_desc_t {
  ze_structure_type_t stype;  // XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC
  const void* pNext;
  void* address;
} xpud_mem_address_desc_t;

// Graphs, as the experimental record-and-replay extension of later versions of Level Zero has them. Between
// begin and end an immediate list keeps what is appended to it instead of running it; what was kept is
// instantiated, and then appended to any list of the same device as one command, any number of times. `next`
// is null. Kernels outlive the graphs that launch them. A list that captures is neither synchronised nor
// destroyed, and no pageable memory is copied meanwhile. "zeCommandListBeginGraphCaptureExp",
// "zeCommandListEndGraphCaptureExp", "zeCommandListInstantiateGraphExp", "zeCommandListAppendGraphExp",
// "zeGraphDestroyExp", "zeExecutableGraphDestroyExp".
typedef struct xpud_graph_t* xpud_graph_handle_t;
typedef struct xpud_executable_graph_t* xpud_executable_graph_handle_t;
typedef ze_result_t(ZE_APICALL* xpud_pfnBeginGraphCapture_t)(ze_command_list_handle_t list, void* next);
typedef ze_result_t(ZE_APICALL* xpud_pfnEndGraphCapture_t)(ze_command_list_handle_t list,
                                                           xpud_graph_handle_t* graph, void* next);
typedef ze_result_t(ZE_APICALL* xpud_pfnInstantiateGraph_t)(xpud_graph_handle_t graph,
                                                            xpud_executable_graph_handle_t* executable,
                                                            void* next);
typedef ze_result_t(ZE_APICALL* xpud_pfnAppendGraph_t)(ze_command_list_handle_t list,
                                                       xpud_executable_graph_handle_t executable, void* next,
                                                       ze_event_handle_t signal_event,
                                                       uint32_t num_wait_events,
                                                       ze_event_handle_t* wait_events);
typedef ze_result_t(ZE_APICALL* xpud_pfnGraphDestroy_t)(xpud_graph_handle_t graph);
typedef ze_result_t(ZE_APICALL* xpud_pfnExecutableGraphDestroy_t)(xpud_executable_graph_handle_t executable);

// In-order immediate lists, as API 1.9's ZE_COMMAND_QUEUE_FLAG_IN_ORDER. A driver that offers the functions
// above accepts it; its absence means that a barrier must stand before each append.
#define XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER ((ze_command_queue_flags_t)(1u << 1))

#ifdef __cplusplus
}
#endif
