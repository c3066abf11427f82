#include "kernels/library/simd/simd.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace xpud::kernels::simd {
namespace {

// Asks the kernel for the tile registers, which a process does not have from the start.
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

class Table {
 public:
  Table() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) {
      const bool has_tiles = __builtin_cpu_supports("amx-bf16"),
                 has_pairs = __builtin_cpu_supports("avx512bf16");
      if (has_tiles && MayUseTiles()) AddWith("amx", amx::kAttention);
      // CPUs with tiles multiply pairs outside of them at half the rate of f32.
      if (has_pairs && !has_tiles) AddWith("v4_bf16", v4_bf16::kAttention);
      Add(v4::kFunctions);
      if (has_pairs && has_tiles) AddWith("v4_bf16", v4_bf16::kAttention);
    }
    if (__builtin_cpu_supports("x86-64-v3")) Add(v3::kFunctions);
    Add(baseline::kFunctions);
  }

  const Functions* const* functions() const { return functions_; }
  int count() const { return count_; }

 private:
  static constexpr int kMaxCount = 5;

  void Add(const Functions& functions) { functions_[count_++] = &functions; }
  void AddWith(const char* isa, const AttentionFunctions& attention_bf16) {
    Functions& functions = own_[count_];
    functions = v4::kFunctions;
    functions.isa = isa;
    functions.attention_bf16 = attention_bf16;
    Add(functions);
  }

  const Functions* functions_[kMaxCount];
  Functions own_[kMaxCount];
  int count_ = 0;
};

const Table& Machine() {
  static const Table table;
  return table;
}

const Functions* used_in_tests = nullptr;

}  // namespace

const Functions& Best() { return used_in_tests != nullptr ? *used_in_tests : *Machine().functions()[0]; }

void UseInTests(const Functions* functions) { used_in_tests = functions; }

const Functions* const* Supported(int* count) {
  *count = Machine().count();
  return Machine().functions();
}

}  // namespace xpud::kernels::simd
