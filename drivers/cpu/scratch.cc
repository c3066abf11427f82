#include "drivers/cpu/scratch.h"

#include <sys/mman.h>

#include "proto/base/check.h"
#include "proto/base/ze_ext.h"

namespace xpud::drivers::cpu {
namespace {

struct Scratch {
  void* memory = nullptr;
  void Map() {
    memory = mmap(nullptr, XPUD_HOST_SCRATCH_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    XPUD_CHECK(memory != MAP_FAILED);
  }
  ~Scratch() {
    if (memory != nullptr) munmap(memory, XPUD_HOST_SCRATCH_BYTES);
    memory = nullptr;
  }
};

thread_local Scratch scratch;

}  // namespace

void* ThreadScratch() {
  if (scratch.memory == nullptr) [[unlikely]]
    scratch.Map();
  return scratch.memory;
}

}  // namespace xpud::drivers::cpu
