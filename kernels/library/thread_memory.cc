#include "kernels/library/thread_memory.h"

#include <cstdlib>
#include <memory>

#include "proto/base/check.h"

namespace xpud::kernels {

std::byte* ThreadMemory(size_t bytes) {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  thread_local std::unique_ptr<void, Free> memory;
  thread_local size_t capacity = 0;
  if (bytes > capacity) {
    memory.reset();
    capacity = (bytes + 4095) / 4096 * 4096;
    memory.reset(std::aligned_alloc(4096, capacity));
    XPUD_CHECK(memory != nullptr);
  }
  return static_cast<std::byte*>(memory.get());
}

}  // namespace xpud::kernels
