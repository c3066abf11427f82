// Physical memory as the application sees it: a handle of the context that made it. Immutable; thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "drivers/frontend/driver.h"
#include "drivers/frontend/physical_block.h"

namespace xpud::drivers {

class PhysicalMemory final : public Object {
 public:
  using Handle = ze_physical_mem_handle_t;
  static constexpr Kind kKind = Kind::kPhysicalMemory;

  PhysicalMemory(const Context& context, const Driver* driver, Device& device, bool exportable, uint64_t id,
                 std::unique_ptr<const PhysicalBlock> block)
      : Object(driver),
        context_(context),
        device_(device),
        exportable_(exportable),
        id_(id),
        block_(std::move(block)) {}

  const Context& context() const { return context_; }
  Device& device() const { return device_; }
  bool exportable() const { return exportable_; }
  uint64_t id() const { return id_; }  // of the same numbers as those of the context's allocations
  const PhysicalBlock& block() const { return *block_; }

 private:
  const Context& context_;
  Device& device_;
  const bool exportable_;
  const uint64_t id_;
  const std::unique_ptr<const PhysicalBlock> block_;
};

}  // namespace xpud::drivers
