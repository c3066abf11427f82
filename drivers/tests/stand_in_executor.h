// For tests: the child of child_process.h. Does what an executor does, with Debian's loader and our driver:
// maps memory at given addresses, writes words, runs kernels that end the process. One thread, and one more
// for kSpin.
#pragma once

#include <level_zero/ze_api.h>

#include <string>
#include <vector>

#include "drivers/tests/child_process.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers {

class StandInExecutor {
 public:
  // Serves requests until the peer is gone. Returns the exit status of the process.
  static int Serve(int socket);

 private:
  ze_result_t Run(const Message& order, Message& answer, UniqueFd& fd);
  ze_result_t Start(const char* vendor, Message& answer);
  ze_result_t FindDriver(const char* vendor, Message& answer);
  ze_result_t LoadKernels();
  ze_result_t Load(ze_module_format_t format, const void* input, size_t size, ze_module_handle_t& module);
  ze_result_t Find(ze_module_handle_t module, const char* name, ze_kernel_handle_t& kernel);
  ze_result_t Allocate(const Message& order, Message& answer, UniqueFd& fd);
  ze_result_t Import(const Message& order, Message& answer, int fd);
  ze_result_t Write(const Message& order);
  ze_result_t Check(const Message& order, Message& answer);
  ze_result_t Share(const Message& order, Message& answer, int fd);
  ze_result_t Add(uint64_t address, uint64_t addend);
  ze_result_t Fault();
  ze_result_t Spin();
  ze_result_t Finish();

  bool cpu_ = false;
  ze_driver_handle_t driver_ = nullptr;
  ze_device_handle_t device_ = nullptr;
  ze_context_handle_t context_ = nullptr;
  ze_command_list_handle_t list_ = nullptr;
  ze_kernel_handle_t add_ = nullptr;
  ze_kernel_handle_t fault_ = nullptr;
  ze_kernel_handle_t spin_ = nullptr;
  xpud_pfnAppendLaunchKernelWithArguments_t launch_ = nullptr;
  xpud_pfnCommandListHostSynchronize_t synchronize_ = nullptr;
};

}  // namespace xpud::drivers
