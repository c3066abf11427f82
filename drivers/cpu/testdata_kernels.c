// For tests: kernels as the kernel compiler makes them, compiled to an object and embedded.
#include <stdint.h>

static const float kScale[4] = {1.0f, 2.0f, 3.0f, 4.0f};
uint64_t launches = 0;                                       // reached through the GOT, writable
static const float* const kTable[2] = {kScale, kScale + 2};  // .data.rel.ro

// out[group] = in[group] * factor, one element for each group.
void scale(const void* const* args, const uint32_t group[3], void* scratch) {
  (void)scratch;
  float* const out = *(float* const*)args[0];
  const float* const in = *(const float* const*)args[1];
  const float factor = *(const float*)args[2];
  out[group[0]] = in[group[0]] * factor;
}
__asm__(
    ".globl scale.arg_sizes\n.section .rodata\n.type scale.arg_sizes, @object\n.p2align 2\n"
    "scale.arg_sizes: .long 8, 8, 4\n.size scale.arg_sizes, 12\n.text\n");

// Writes a table's values and counts itself.
void table(const void* const* args, const uint32_t group[3], void* scratch) {
  (void)scratch;
  float* const out = *(float* const*)args[0];
  out[group[0]] = kTable[group[0] / 2][group[0] % 2];
  __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
}
__asm__(
    ".globl table.arg_sizes\n.section .rodata\n.type table.arg_sizes, @object\n.p2align 2\n"
    "table.arg_sizes: .long 8\n.size table.arg_sizes, 4\n.text\n");

// out[group] += addend.
void add(const void* const* args, const uint32_t group[3], void* scratch) {
  (void)scratch;
  uint64_t* const out = *(uint64_t* const*)args[0];
  out[group[0]] += *(const uint64_t*)args[1];
}
__asm__(
    ".globl add.arg_sizes\n.section .rodata\n.type add.arg_sizes, @object\n.p2align 2\n"
    "add.arg_sizes: .long 8, 8\n.size add.arg_sizes, 8\n.text\n");
