// The kernels that the work of one executor after another has used: which threads of the executor have loaded
// each one, and how often it ran. A thread of the executor loads modules and kernels for its ring only, when
// the first launch needs them. Owned by ExecutorPost. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "daemon/executor/process/executor_rings.h"
#include "kernels/api/launch.h"

namespace xpud::executor::process {

class KernelTable {
 public:
  // `rings` outlive the table.
  explicit KernelTable(ExecutorRings& rings) : rings_(rings) {}

  // Adds the kernel if it is new. Returns its index.
  uint32_t Add(const kernels::Kernel& kernel);
  // Has the ring's thread load the kernel, unless it has. Returns false if the ring is full.
  bool Load(size_t ring, uint32_t kernel);
  // The present executor is new: it has loaded nothing.
  void ForgetLoaded();
  // Unloads kernels and removes them from the list, except for those that are `needed`, and those for which a
  // ring is full. REQUIRES: all launches of the others are done.
  void Unload(std::vector<const kernels::Kernel*>& kernels, const absl::flat_hash_set<uint32_t>& needed);

  // A kernel that was added.
  const kernels::Kernel& operator[](uint32_t kernel) const { return *kernels_[kernel].kernel; }
  // Completed launches of a kernel.
  void CountRun(uint32_t kernel) { ++kernels_[kernel].runs; }
  uint64_t runs(uint32_t kernel) const { return kernels_[kernel].runs; }

 private:
  struct Record {
    const kernels::Kernel* kernel = nullptr;
    uint64_t runs = 0;
    uint32_t loaded = 0;  // bit r: by the thread of ring r
  };
  struct Module {
    uint32_t number = 0;
    uint32_t loaded = 0;  // as above
  };
  Module& ModuleOf(const kernels::ModuleImage& image);
  bool LoadModule(size_t ring, const kernels::ModuleImage& image, Module& module);
  bool Unload(const kernels::Kernel& kernel);

  ExecutorRings& rings_;
  std::vector<Record> kernels_;  // by Kernel::index
  absl::flat_hash_map<const kernels::ModuleImage*, Module> modules_;
  std::vector<uint32_t> free_modules_;  // numbers of unloaded modules
};

}  // namespace xpud::executor::process
