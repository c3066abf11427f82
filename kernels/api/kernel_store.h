// The interface between planners, which create kernels (the compiler, vendor libraries), and the library that
// keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/code.h"
#include "kernels/api/launch.h"
#include "proto/base/histogram.h"

namespace xpud::kernels {

// Runs a HOST kernel outside any queue, in the process that owns the device. See
// KernelLibrary::Options::run_host_kernel.
using HostKernelRunner = std::function<absl::StatusOr<uint64_t>(const Launch& launch)>;
// Drops the caller's state for kernels that will not be launched again. See KernelLibrary::Options::forget.
using ForgetKernels = std::function<void(std::vector<const Kernel*>& kernels)>;

// Since the library was made. Our own PTX that is only assembled counts as compiled; kernels of vendors'
// libraries do not. What several libraries of one compiler want is compiled once: it counts as compiled,
// loaded from disk or failed for the library that asked first, and as shared for each other one.
struct KernelCounters {
  uint64_t compiled = 0;
  uint64_t disk_hits = 0;    // compiled by an earlier process
  uint64_t shared_hits = 0;  // another library had asked for it before
  uint64_t memory_hits = 0;  // found ready, each time one was wanted
  uint64_t failed = 0;       // could not be compiled
  uint64_t compile_ns = 0;   // time spent compiling, failures included
  Histogram compile_times;   // of each of them
};

// Owns the kernels of one device and hands out dense kernel indices. What it returns lives as long as it
// does. One thread: that of its library.
class KernelStore {
 public:
  virtual ~KernelStore() = default;
  // Keeps the image.
  virtual const Kernel* Add(std::shared_ptr<const ModuleImage> image, std::string entry) = 0;
  const Kernel* Add(ModuleImage image, std::string entry) {
    return Add(std::make_shared<const ModuleImage>(std::move(image)), std::move(entry));
  }
  // A further entry point of a kernel's module.
  virtual const Kernel* AddEntry(const Kernel& sibling, std::string entry) = 0;
  // Runs `work` on a thread of this store, and then KernelLibrary::Options::on_ready.
  virtual void InBackground(std::function<void()> work) = 0;
  // Returns PTX text, of static lifetime, as the device takes it: assembled in the background, which ends
  // with KernelLibrary::Options::on_ready, or as it is if nothing assembles.
  virtual std::shared_ptr<const Code> Assemble(std::string_view ptx) = 0;
};

}  // namespace xpud::kernels
