#include "drivers/cuda/builtin_kernels.h"

#include <algorithm>
#include <cstring>

#include "drivers/cuda/cuda_library.h"

namespace xpud::drivers::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kMaxGroups = 2048;

// Groups for `size` elements, each thread taking as many as needed.
unsigned GroupsFor(size_t size) {
  return static_cast<unsigned>(std::clamp((size + kThreads - 1) / kThreads, size_t{1}, kMaxGroups));
}

constexpr char kSource[] = R"(
.version 7.8
.target sm_70
.address_size 64
.visible .entry xpud_store_time(.param .u64 target)
{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [target];
  mov.u64 %rd1, %globaltimer;
  st.relaxed.sys.u64 [%rd0], %rd1;
  ret;
}
.visible .entry xpud_fill(.param .u64 target, .param .u64 size, .param .u32 pattern_size, .param .align 8 .b8 pattern[128])
{
  .reg .pred %p<2>;
  .reg .b16 %rs<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd0, [target];
  ld.param.u64 %rd1, [size];
  ld.param.u32 %r0, [pattern_size];
  cvt.u64.u32 %rd7, %r0;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd2, %r1, %r2;
  cvt.u64.u32 %rd3, %r3;
  add.u64 %rd2, %rd2, %rd3;
  mul.wide.u32 %rd4, %r4, %r2;
  mov.b64 %rd5, pattern;
  bra test;
step:
  rem.u64 %rd6, %rd2, %rd7;
  add.u64 %rd8, %rd5, %rd6;
  ld.param.u8 %rs0, [%rd8];
  add.u64 %rd9, %rd0, %rd2;
  st.u8 [%rd9], %rs0;
  add.u64 %rd2, %rd2, %rd4;
test:
  setp.lt.u64 %p0, %rd2, %rd1;
  @%p0 bra step;
  ret;
}
.visible .entry xpud_copy(.param .u64 target, .param .u64 source, .param .u64 size)
{
  .reg .pred %p<3>;
  .reg .b16 %rs<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<16>;
  ld.param.u64 %rd0, [target];
  ld.param.u64 %rd1, [source];
  ld.param.u64 %rd2, [size];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  mul.wide.u32 %rd3, %r1, %r2;
  cvt.u64.u32 %rd4, %r3;
  add.u64 %rd3, %rd3, %rd4;
  mul.wide.u32 %rd4, %r4, %r2;
  mov.u64 %rd5, %rd3;
  or.b64 %rd6, %rd0, %rd1;
  and.b64 %rd6, %rd6, 7;
  setp.eq.u64 %p0, %rd6, 0;
  shr.u64 %rd7, %rd2, 3;
  selp.u64 %rd7, %rd7, 0, %p0;
  bra word_test;
word:
  shl.b64 %rd8, %rd5, 3;
  add.u64 %rd9, %rd1, %rd8;
  ld.u64 %rd10, [%rd9];
  add.u64 %rd9, %rd0, %rd8;
  st.u64 [%rd9], %rd10;
  add.u64 %rd5, %rd5, %rd4;
word_test:
  setp.lt.u64 %p1, %rd5, %rd7;
  @%p1 bra word;
  shl.b64 %rd8, %rd7, 3;
  add.u64 %rd5, %rd3, %rd8;
  bra byte_test;
byte:
  add.u64 %rd9, %rd1, %rd5;
  ld.u8 %rs0, [%rd9];
  add.u64 %rd9, %rd0, %rd5;
  st.u8 [%rd9], %rs0;
  add.u64 %rd5, %rd5, %rd4;
byte_test:
  setp.lt.u64 %p1, %rd5, %rd2;
  @%p1 bra byte;
  ret;
}
)";

}  // namespace

CUresult BuiltinKernels::Load() {
  CUmodule module = nullptr;  // stays as long as the context
  CUresult result = cu.cuModuleLoadData(&module, kSource);
  if (result == CUDA_SUCCESS) result = cu.cuModuleGetFunction(&store_time_, module, "xpud_store_time");
  if (result == CUDA_SUCCESS) result = cu.cuModuleGetFunction(&fill_, module, "xpud_fill");
  if (result == CUDA_SUCCESS) result = cu.cuModuleGetFunction(&copy_, module, "xpud_copy");
  for (CUfunction function : {store_time_, fill_, copy_}) {
    if (result == CUDA_SUCCESS) result = cu.cuFuncLoad(function);
  }
  return result;
}

CUresult BuiltinKernels::StoreTime(uint64_t* target, CUstream stream) const {
  void* arguments[] = {&target};
  return cu.cuLaunchKernel(store_time_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

CUresult BuiltinKernels::Fill(void* target, const void* pattern, size_t pattern_size, size_t size,
                              CUstream stream) const {
  alignas(8) std::byte copy[kMaxPatternSize] = {};
  std::memcpy(copy, pattern, pattern_size);
  uint64_t bytes = size;
  auto pattern_bytes = static_cast<uint32_t>(pattern_size);
  void* arguments[] = {&target, &bytes, &pattern_bytes, copy};
  return cu.cuLaunchKernel(fill_, GroupsFor(size), 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr);
}

CUresult BuiltinKernels::Copy(void* target, const void* source, size_t size, CUstream stream) const {
  uint64_t bytes = size;
  void* arguments[] = {&target, &source, &bytes};
  return cu.cuLaunchKernel(copy_, GroupsFor(size / sizeof(uint64_t)), 1, 1, kThreads, 1, 1, 0, stream,
                           arguments, nullptr);
}

}  // namespace xpud::drivers::cuda
