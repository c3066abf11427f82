// A Level Zero device as the daemon uses it: memory in chunks, kernels loaded once, queues. The engine thread
// only, except where said. Owns the context and every handle made from it.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/kernel_library.h"
#include "proto/base/unique_fd.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {

struct DeviceProperties {
  std::string name;
  std::string kind;    // "cpu", "gpu"
  std::string vendor;  // "cpu", "cuda", "intel": the driver behind the device
  uint64_t total_memory = 0;
  uint32_t compute_units = 0;
  std::string processor;  // as the driver names what native modules are for: "sm_90"
  // Whether work is done when the call that appended it returns (the CPU device).
  bool synchronous = false;
  kernels::Target target = kernels::Target::kHost;
};

// Device memory whose life is its own: exported as an fd, so that it could outlive the process that uses it.
class Chunk {
 public:
  Chunk(ze_context_handle_t context, void* address, uint64_t bytes)
      : context_(context), address_(address), bytes_(bytes) {}
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;
  ~Chunk();
  std::byte* address() const { return static_cast<std::byte*>(address_); }
  uint64_t bytes() const { return bytes_; }

 private:
  ze_context_handle_t context_;
  void* address_;
  uint64_t bytes_;
};

// Host memory that the device reads and writes in place, zero at first.
class HostMemory {
 public:
  HostMemory(ze_context_handle_t context, void* address) : context_(context), address_(address) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();
  std::byte* address() const { return static_cast<std::byte*>(address_); }

 private:
  ze_context_handle_t context_;
  void* address_;
};

class Device;

// Memory of the process that a device was given access to; it ends with this object.
class ImportedMemory {
 public:
  ImportedMemory(Device& device, void* address) : device_(device), address_(address) {}
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;
  ~ImportedMemory();

 private:
  Device& device_;
  void* address_;
};

class DeviceQueue;

class Device {
 public:
  // `asynchronous`: to be treated as a device that works on its own, whatever it is (tests).
  static absl::StatusOr<std::unique_ptr<Device>> Open(ze_driver_handle_t driver, ze_device_handle_t device,
                                                      bool asynchronous);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceProperties& properties() const { return properties_; }  // any thread
  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes);
  // Gives the device access to whole pages of this process; null where it needs none (the CPU device) or
  // cannot (copies then go the driver's own way).
  absl::StatusOr<std::unique_ptr<ImportedMemory>> Import(std::span<std::byte> memory);
  absl::StatusOr<std::unique_ptr<DeviceQueue>> CreateQueue(int priority);
  // The driver's machine code for a module's text, to be kept on disk. Any thread.
  absl::StatusOr<std::string> Assemble(const std::string& text) const;
  // Loaded at the first call, then a table look-up by kernel.index.
  absl::StatusOr<ze_kernel_handle_t> Load(const kernels::Kernel& kernel);

 private:
  friend class DeviceQueue;
  friend class ImportedMemory;
  struct Functions {
    xpud_pfnAppendLaunchKernelWithArguments_t launch = nullptr;
    xpud_pfnCommandListHostSynchronize_t synchronize = nullptr;
    xpud_pfnAppendWriteValue64_t write_value = nullptr;
    xpud_pfnModuleCreate_t create_module = nullptr;
    xpud_pfnImportExternalPointer_t import_pointer = nullptr;    // may be absent
    xpud_pfnReleaseImportedPointer_t release_pointer = nullptr;  // may be absent
  };
  struct LoadedModule {
    const kernels::ModuleImage* image;
    ze_module_handle_t handle;
  };

  Device() = default;
  absl::Status ReadProperties(ze_driver_handle_t driver);
  absl::Status FindFunctions(ze_driver_handle_t driver);
  absl::StatusOr<ze_module_handle_t> CreateModule(ze_module_format_t format, const void* input,
                                                  size_t bytes) const;
  absl::StatusOr<ze_module_handle_t> LoadModule(const kernels::ModuleImage& image);

  ze_driver_handle_t driver_ = nullptr;
  ze_device_handle_t device_ = nullptr;
  ze_context_handle_t context_ = nullptr;
  DeviceProperties properties_;
  Functions functions_;
  std::vector<ze_kernel_handle_t> kernels_;  // by Kernel::index
  std::vector<LoadedModule> modules_;
};

}  // namespace xpud::executor
