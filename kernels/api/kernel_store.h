// The seam between whoever makes kernels (the compiler, vendor libraries) and whoever keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/launch.h"

namespace xpud::kernels {

// Runs a HOST kernel apart from any queue, in the process that has the device. See
// KernelLibrary::Options::ask.
using AskDevice = std::function<absl::StatusOr<uint64_t>(const Launch& launch)>;
// Drops what the caller keeps of kernels that no further launch names. See KernelLibrary::Options::forget.
using ForgetKernels = std::function<void(std::vector<const Kernel*>& kernels)>;

// Since the library was made. Our own PTX that is only assembled counts as compiled; kernels of vendors'
// libraries do not.
struct KernelCounters {
  uint64_t compiled = 0;
  uint64_t disk_hits = 0;    // compiled by an earlier process
  uint64_t memory_hits = 0;  // found ready, each time one was wanted
  uint64_t failed = 0;       // could not be compiled
  uint64_t compile_ns = 0;   // time spent compiling, failures included
};

// Owns modules and kernels and hands out dense kernel indices. Thread-safe; what it returns lives as long as
// it does.
class KernelStore {
 public:
  virtual ~KernelStore() = default;
  // Keeps the image.
  virtual const Kernel* Add(ModuleImage image, std::string entry) = 0;
  // A further entry point of a kernel's module.
  virtual const Kernel* AddEntry(const Kernel& sibling, std::string entry) = 0;
  // Runs `work` on the compiler's thread, and then KernelLibrary::Options::on_ready. Not called from there.
  virtual void InBackground(std::function<void()> work) = 0;
  // PTX text as the device takes it: from disk, assembled now, or as it is where nothing assembles. In the
  // background only.
  virtual absl::StatusOr<ModuleImage> Assemble(std::string_view ptx) = 0;
};

}  // namespace xpud::kernels
