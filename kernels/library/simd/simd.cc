#include "kernels/library/simd/simd.h"

namespace xpud::kernels::simd {
namespace {

struct Table {
  const Functions* functions[3];
  int count = 0;
  Table() {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) functions[count++] = &v4::kFunctions;
    if (__builtin_cpu_supports("x86-64-v3")) functions[count++] = &v3::kFunctions;
    functions[count++] = &baseline::kFunctions;
  }
};

const Table& Machine() {
  static const Table table;
  return table;
}

}  // namespace

const Functions& Best() { return *Machine().functions[0]; }

const Functions* const* Supported(int* count) {
  *count = Machine().count;
  return Machine().functions;
}

}  // namespace xpud::kernels::simd
