// The interface between planners, which create kernels (the compiler, vendor libraries), and the library that
// keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/api/launch.h"

namespace xpud::kernels {

// Runs a HOST kernel outside any queue, in the process that owns the device. See KernelLibrary::Options::ask.
using AskDevice = std::function<absl::StatusOr<uint64_t>(const Launch& launch)>;
// Drops the caller's state for kernels that will not be launched again. See KernelLibrary::Options::forget.
using ForgetKernels = std::function<void(std::vector<const Kernel*>& kernels)>;

// Counted since the library was created. Our own PTX that is only assembled counts as compiled; kernels of
// vendors' libraries are not counted.
struct KernelCounters {
  uint64_t compiled = 0;
  uint64_t disk_hits = 0;    // compiled by an earlier process
  uint64_t memory_hits = 0;  // look-ups that found a ready kernel
  uint64_t failed = 0;       // failed compilations
  uint64_t compile_ns = 0;   // time spent compiling, including failures
};

// Owns modules and kernels, and assigns dense kernel indices. Thread-safe. The pointers that it returns are
// valid as long as the store.
class KernelStore {
 public:
  virtual ~KernelStore() = default;
  // Adds a module and one kernel of it. Keeps the image.
  virtual const Kernel* Add(ModuleImage image, std::string entry) = 0;
  // Adds another entry point of a kernel's module.
  virtual const Kernel* AddEntry(const Kernel& sibling, std::string entry) = 0;
  // Runs `work` on the compiler's thread, then KernelLibrary::Options::on_ready. REQUIRES: another thread.
  virtual void InBackground(std::function<void()> work) = 0;
  // Returns PTX text in a form that the device accepts: machine code from disk, newly assembled code, or the
  // text itself if there is no assembler. REQUIRES: the compiler's thread.
  virtual absl::StatusOr<ModuleImage> Assemble(std::string_view ptx) = 0;
};

}  // namespace xpud::kernels
