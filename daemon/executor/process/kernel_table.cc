#include "daemon/executor/process/kernel_table.h"

#include <string_view>

#include "daemon/executor/process/message_buffer.h"

namespace xpud::executor::process {

uint32_t KernelTable::Add(const kernels::Kernel& kernel) {
  if (kernel.index >= kernels_.size()) kernels_.resize(kernel.index + 1);
  kernels_[kernel.index].kernel = &kernel;
  return kernel.index;
}

KernelTable::Module& KernelTable::ModuleOf(const kernels::ModuleImage& image) {
  const auto [module, is_new] = modules_.try_emplace(&image);
  if (!is_new) return module->second;
  module->second.number = static_cast<uint32_t>(modules_.size() + free_modules_.size() - 1);
  if (free_modules_.empty()) return module->second;
  module->second.number = free_modules_.back();
  free_modules_.pop_back();
  return module->second;
}

bool KernelTable::LoadModule(size_t ring, const kernels::ModuleImage& image, Module& module) {
  if ((module.loaded >> ring & 1) != 0) return true;
  MessageBuffer load;
  load.Add(MessageKind::kLoadModule, 0, std::string_view(image.bytes)).load = {
      image.bytes.size(), static_cast<uint32_t>(image.format), module.number};
  if (!rings_.Send(ring, load.bytes())) return false;
  module.loaded |= 1u << ring;
  return true;
}

bool KernelTable::Load(size_t ring, uint32_t index) {
  Record& record = kernels_[index];
  if ((record.loaded >> ring & 1) != 0) [[likely]]
    return true;
  const kernels::Kernel& kernel = *record.kernel;
  Module& module = ModuleOf(*kernel.module);
  if (!LoadModule(ring, *kernel.module, module)) return false;
  MessageBuffer load;
  Message& message = load.Add(MessageKind::kLoadKernel, 0, std::string_view(kernel.entry));
  message.kernel = index;
  message.load = {kernel.entry.size(), 0, module.number};
  if (!rings_.Send(ring, load.bytes())) return false;
  record.loaded |= 1u << ring;
  return true;
}

void KernelTable::ForgetLoaded() {
  for (Record& record : kernels_) record.loaded = 0;
  for (auto& [image, module] : modules_) module.loaded = 0;
}

void KernelTable::Unload(std::vector<const kernels::Kernel*>& kernels,
                         const absl::flat_hash_set<uint32_t>& needed) {
  std::erase_if(kernels, [&](const kernels::Kernel* kernel) {
    const bool known = kernel->index < kernels_.size() && kernels_[kernel->index].kernel == kernel;
    return !known || (!needed.contains(kernel->index) && Unload(*kernel));
  });
}

// The unload message comes after all launches of the kernel. A replacement executor never loads it.
bool KernelTable::Unload(const kernels::Kernel& kernel) {
  Record& record = kernels_[kernel.index];
  const auto module = modules_.find(kernel.module);
  if (module != modules_.end()) {
    MessageBuffer unload;
    Message& message = unload.Add(MessageKind::kUnloadKernel, 0);
    message.kernel = kernel.index;
    message.load = {0, 0, module->second.number};
    for (size_t ring = 0; ring < rings_.count() && rings_.online(); ++ring) {
      if ((module->second.loaded >> ring & 1) == 0) continue;
      if (!rings_.Send(ring, unload.bytes())) return false;
      record.loaded &= ~(1u << ring);
      module->second.loaded &= ~(1u << ring);
    }
    free_modules_.push_back(module->second.number);
    modules_.erase(module);
  }
  record = {};
  return true;
}

}  // namespace xpud::executor::process
