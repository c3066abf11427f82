// Our Level Zero extensions: what drivers/ offers and daemon/executor uses beyond API 1.4. Functions are
// found by name with zeDriverGetExtensionFunctionAddress; each has a fallback if it is absent.
//
// Module formats:
// clang-format off
//   HOST    pInputModule points at an xpud_host_module_t, which must outlive the module, with everything that it points at;
//           inputSize is sizeof(xpud_host_module_t). The loader's parameter validation refuses this format: use
//           xpudModuleCreate. Its kernels have the calling convention xpud_host_kernel_fn_t.
//           On the CPU device, its kernels run as work: the group size is 1x1x1, and workers claim groups.
//           On CUDA devices, they let a vendor's library take part in a list: each launch, whatever its groups, is one
//           call on the appending thread, during the append, with `scratch` pointing at an xpud_native_list_t. What the
//           kernel enqueues on that stream is the launch's work.
//   NATIVE  (ZE_MODULE_FORMAT_NATIVE) On the CPU device, an x86-64 ELF relocatable object without undefined symbols; each
//           global function `f` with an `uint32_t f.arg_sizes[]` object is a kernel of the convention above.
//           On CUDA devices, a cubin or PTX text.
// clang-format on
#pragma once

#include <level_zero/ze_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define XPUD_ZE_MODULE_FORMAT_HOST ((ze_module_format_t)0x78700001)
#define XPUD_HOST_MODULE_VERSION 1u

// The stream for a HOST kernel on a CUDA device: the list's stream, whose context is current during the call.
typedef struct xpud_native_list_t {
  void* stream;        // CUstream
  void* context;       // CUcontext
  int32_t device;      // CUdevice
  ze_result_t result;  // in: SUCCESS; out: the result of the append
  uint32_t recording;  // 1: the list captures a graph, so enqueued work does not run now
} xpud_native_list_t;

// Size of the scratch memory of an invocation. Scratch is private to the worker, 64-byte aligned, with
// undefined contents.
#define XPUD_HOST_SCRATCH_BYTES ((size_t)4 << 20)

// args[i] points at the value of argument i (like `void** kernelParams`). group is this group's x, y, z.
typedef void (*xpud_host_kernel_fn_t)(const void* const* args, const uint32_t group[3], void* scratch);

typedef struct xpud_host_kernel_t {
  const char* name;
  xpud_host_kernel_fn_t run;
  uint32_t num_args;
  const uint32_t* arg_sizes;  // size of each argument; num_args elements
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

// "zeCommandListAppendLaunchKernelWithArguments" (calling convention of Level Zero 1.14): arguments[i] points
// at the value of argument i, which is copied before the call returns. Does not change the kernel's own
// arguments.
typedef ze_result_t(ZE_APICALL* xpud_pfnAppendLaunchKernelWithArguments_t)(
    ze_command_list_handle_t list, ze_kernel_handle_t kernel, const ze_group_count_t group_counts,
    const xpud_group_size_t group_sizes, const void* const* arguments, const void* next,
    ze_event_handle_t signal_event, uint32_t num_wait_events, ze_event_handle_t* wait_events);

// In the chain (`next`) of that call: a launch that may stop early. Its groups run in order, x first, from
// *next_group on, for about `nanoseconds`. Then the calling thread asks `goes_on`, between two groups,
// whether the launch goes on for as long again (null: it does not). At the end *next_group is the first group
// that has not run, or the number of groups if all have. For lists of the CPU device whose work is done when
// the append returns.
// With `helped_ns`, groups that are left go on after the call, on workers that nothing else wants, so then
// *next_group only says whether any are left. The time that these workers gave, divided by the number of
// workers, is added to *helped_ns by the next call. Until a call says that all groups have run, the list
// takes only calls for the same launch, and arguments and operands must live. A call with `ends` != 0 begins
// no more groups and returns when none is running; so does destroying the list.
#define XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC ((ze_structure_type_t)0x78700011)
typedef struct xpud_launch_part_desc_t {
  ze_structure_type_t stype;  // XPUD_STRUCTURE_TYPE_LAUNCH_PART_DESC
  const void* pNext;
  uint64_t nanoseconds;
  uint64_t* next_group;
  int (*goes_on)(const void* context);
  const void* context;
  uint64_t* helped_ns;  // may be null
  uint32_t ends;
} xpud_launch_part_desc_t;

// "zeCommandListHostSynchronize" (Level Zero 1.6): waits until all work appended to an immediate list is
// done.
typedef ze_result_t(ZE_APICALL* xpud_pfnCommandListHostSynchronize_t)(ze_command_list_handle_t list,
                                                                      uint64_t timeout_ns);

// "xpudCommandListAppendWriteValue64": stores `value` at `address` (8-byte aligned, release order, system
// scope) when all earlier work of the list is done.
typedef ze_result_t(ZE_APICALL* xpud_pfnAppendWriteValue64_t)(ze_command_list_handle_t list,
                                                              uint64_t* address, uint64_t value);

// "xpudModuleCreate": zeModuleCreate without the loader's validation layer, which does not know the HOST
// format.
typedef ze_result_t(ZE_APICALL* xpud_pfnModuleCreate_t)(ze_context_handle_t context,
                                                        ze_device_handle_t device,
                                                        const ze_module_desc_t* desc,
                                                        ze_module_handle_t* module,
                                                        ze_module_build_log_handle_t* log);

// A back end of our driver library as the daemon sees it, so that the daemon need not know back ends by name.
#define XPUD_CODE_HOST 0u   // kernels are x86-64 objects
#define XPUD_CODE_PTX 1u    // kernels are PTX, or cubins made of it
#define XPUD_CODE_SPIRV 2u  // kernels are SPIR-V
typedef struct xpud_back_end_t {
  const char* name;         // for XPUD_BACK_ENDS and the daemon's --device
  const char* kind;         // kind of its devices: "cpu" or "gpu"
  uint32_t code;            // XPUD_CODE_...
  uint32_t own_process;     // 1: each device needs a process of its own, because a fault of its work ends the
                            // process's use of all devices
  uint32_t synchronous;     // 1: work is done when its append returns
  uint32_t append_threads;  // number of threads of a process that append faster than one
  uint32_t takes_pageable;  // 1: pageable memory may change once the append of a copy from it has returned
} xpud_back_end_t;

// "xpudDriverGetBackEnd": returns the back end of a driver handle; static.
typedef ze_result_t(ZE_APICALL* xpud_pfnDriverGetBackEnd_t)(ze_driver_handle_t driver,
                                                            const xpud_back_end_t** back_end);

// The library exports this function under its name. It may be called before or without zeInit, and returns
// all back ends, whether or not they have devices. If the environment variable XPUD_BACK_ENDS is set, zeInit
// looks only for devices of the back ends in that comma-separated list.
#define XPUD_LIST_BACK_ENDS "xpudListBackEnds"
typedef uint32_t(ZE_APICALL* xpud_pfnListBackEnds_t)(const xpud_back_end_t* const** back_ends);

// "xpudDeviceGetPeakRates": what a device can do in a second at its usual clock, as its maker says; 0: not
// known. A multiplication with its addition is one operation.
typedef struct xpud_peak_rates_t {
  uint64_t memory_bytes;
  uint64_t float_operations;  // on float32, in vectors
  uint64_t half_operations;   // on float16 and bfloat16, by the fastest means, such as matrix units
} xpud_peak_rates_t;
typedef ze_result_t(ZE_APICALL* xpud_pfnDeviceGetPeakRates_t)(ze_device_handle_t device,
                                                              xpud_peak_rates_t* rates);

// "zexDriverImportExternalPointer", "zexDriverReleaseImportedPointer" (as in Intel's driver): maps existing
// memory of the process, such as a staging memfd, for direct access by all devices of the driver. `pointer`
// and `size` must be multiples of the page size.
typedef ze_result_t(ZE_APICALL* xpud_pfnImportExternalPointer_t)(ze_driver_handle_t driver, void* pointer,
                                                                 size_t size);
typedef ze_result_t(ZE_APICALL* xpud_pfnReleaseImportedPointer_t)(ze_driver_handle_t driver, void* pointer);

// "xpudGetLoadReport": returns one line, with the reason, for each back end that found no device ("cuda:
// libcuda.so.1 was not found"). Any of our drivers returns the report of all. The library also exports it
// under this name, for use when zeInit found no driver.
typedef ze_result_t(ZE_APICALL* xpud_pfnGetLoadReport_t)(const char** report);

// In the chain of the ze_device_mem_alloc_desc_t of zeMemAllocDevice: the allocation is placed at exactly
// this address, a multiple of XPUD_MEM_ADDRESS_UNIT and of the requested alignment, or the call allocates
// nothing and returns ZE_RESULT_ERROR_OVERLAPPING_REGIONS. It uses whole units of address space, whatever its
// size. For new memory (exportable or not) and imported memory, so that another process can map memory at the
// same address. drivers/README.md says which addresses are free.
#define XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC ((ze_structure_type_t)0x78700010)
#define XPUD_MEM_ADDRESS_UNIT ((size_t)64 << 20)
typedef struct xpud_mem_address_desc_t {
  ze_structure_type_t stype;  // XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC
  const void* pNext;
  void* address;
} xpud_mem_address_desc_t;

// Physical memory that processes share, as in Level Zero 1.15: zePhysicalMemCreate takes, in the chain of its
// descriptor, a ze_external_memory_export_desc_t (new memory that can be exported) or a
// ze_external_memory_import_fd_t (the memory behind the fd, which stays the caller's; imports that are larger
// than the memory give INVALID_SIZE, on CUDA only when they are mapped).
// "zePhysicalMemGetProperties": with a ze_external_memory_export_fd_t in its chain (`pNext`), returns a new
// fd that the caller owns. zeMemGetAllocProperties does the same for an address where the memory is mapped.
#define XPUD_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES ((ze_structure_type_t)0x00020040)
typedef struct xpud_physical_mem_properties_t {
  ze_structure_type_t stype;  // XPUD_STRUCTURE_TYPE_PHYSICAL_MEM_PROPERTIES
  void* pNext;
  uint64_t id;    // out
  uint64_t size;  // out
} xpud_physical_mem_properties_t;
typedef ze_result_t(ZE_APICALL* xpud_pfnPhysicalMemGetProperties_t)(
    ze_context_handle_t context, ze_physical_mem_handle_t memory, xpud_physical_mem_properties_t* properties);

// Graphs, as in the experimental record-and-replay extension of later versions of Level Zero. Between begin
// and end an immediate list records what is appended, instead of running it. A recorded graph is
// instantiated, and then appended to any list of the same device as one command, any number of times. `next`
// is null. Kernels must outlive the graphs that launch them. A capturing list must not be synchronised or
// destroyed, and no pageable memory may be copied meanwhile. "zeCommandListBeginGraphCaptureExp",
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

// "xpudCommandListCountCaptured": how many operations of the device a capturing list has captured so far.
typedef ze_result_t(ZE_APICALL* xpud_pfnCountCaptured_t)(ze_command_list_handle_t list, uint32_t* count);

// When the work of a driver's devices ran. Tracing concerns all lists of the process, and slows appends down.
// Work is reported by the tag that the appending thread had set; untagged work is not reported. A graph's
// operations have the tag of the append of the graph. One append may be several operations, and a report may
// come out of order.
typedef struct xpud_trace_record_t {
  uint64_t tag;
  uint64_t began_ns, ended_ns;  // CLOCK_MONOTONIC
} xpud_trace_record_t;
typedef void(ZE_APICALL* xpud_pfnTraceReport_t)(void* user, const xpud_trace_record_t* records, size_t count);

// "xpudDriverStartTrace": `report` is called on any thread, one at a time, until the trace was stopped.
// UNSUPPORTED_FEATURE: the vendor's library for it was not found or is in use.
// "xpudDriverFlushTrace": reports, before it returns, all work that has ended if no other work is in flight.
// "xpudDriverStopTrace": the same, and ends the trace.
// "xpudSetTraceTag": of what the calling thread appends from now on; 0: none.
typedef ze_result_t(ZE_APICALL* xpud_pfnStartTrace_t)(ze_driver_handle_t driver, xpud_pfnTraceReport_t report,
                                                      void* user);
typedef ze_result_t(ZE_APICALL* xpud_pfnFlushTrace_t)(ze_driver_handle_t driver);
typedef ze_result_t(ZE_APICALL* xpud_pfnStopTrace_t)(ze_driver_handle_t driver);
typedef void(ZE_APICALL* xpud_pfnSetTraceTag_t)(uint64_t tag);

// In-order immediate lists, as API 1.9's ZE_COMMAND_QUEUE_FLAG_IN_ORDER. A driver with the functions above
// accepts it. Without them, put a barrier before each append.
#define XPUD_ZE_COMMAND_QUEUE_FLAG_IN_ORDER ((ze_command_queue_flags_t)(1u << 1))

#ifdef __cplusplus
}
#endif
