// A module of this folder's PTX in a store. It is assembled in the background at first use. The library's
// thread only. Outlives the store's background work.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/api/kernel_store.h"

namespace xpud::kernels {

class PtxModule {
 public:
  // REQUIRES: `ptx` has static lifetime.
  PtxModule(KernelStore& store, std::string_view ptx, std::vector<std::string> entries)
      : store_(store), ptx_(ptx), entries_(std::move(entries)) {}
  PtxModule(const PtxModule&) = delete;
  PtxModule& operator=(const PtxModule&) = delete;

  // Returns entries[entry], nullptr while the module is being assembled, or the error of assembling it.
  absl::StatusOr<const Kernel*> Find(size_t entry);

 private:
  void AddKernels();

  KernelStore& store_;
  const std::string_view ptx_;
  const std::vector<std::string> entries_;
  std::shared_ptr<const Code> code_;    // null: not wanted yet
  std::vector<const Kernel*> kernels_;  // empty: not ready
};

}  // namespace xpud::kernels
