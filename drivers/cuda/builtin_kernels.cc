#include "drivers/cuda/builtin_kernels.h"

#include <algorithm>
#include <cstring>

#include "drivers/cuda/cuda_library.h"

namespace xpud::drivers::cuda {
namespace {

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
)";

}  // namespace

CUresult BuiltinKernels::Load() {
  CUmodule module = nullptr;  // stays as long as the context
  CUresult result = cu.cuModuleLoadData(&module, kSource);
  if (result == CUDA_SUCCESS) result = cu.cuModuleGetFunction(&store_time_, module, "xpud_store_time");
  if (result == CUDA_SUCCESS) result = cu.cuModuleGetFunction(&fill_, module, "xpud_fill");
  if (result == CUDA_SUCCESS) result = cu.cuFuncLoad(store_time_);
  if (result == CUDA_SUCCESS) result = cu.cuFuncLoad(fill_);
  return result;
}

CUresult BuiltinKernels::StoreTime(uint64_t* target, CUstream stream) const {
  void* arguments[] = {&target};
  return cu.cuLaunchKernel(store_time_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

CUresult BuiltinKernels::Fill(void* target, const void* pattern, size_t pattern_size, size_t size,
                              CUstream stream) const {
  constexpr unsigned kThreads = 256;
  constexpr size_t kMaxGroups = 2048;
  alignas(8) std::byte copy[kMaxPatternSize] = {};
  std::memcpy(copy, pattern, pattern_size);
  uint64_t bytes = size;
  auto pattern_bytes = static_cast<uint32_t>(pattern_size);
  void* arguments[] = {&target, &bytes, &pattern_bytes, copy};
  const auto groups = static_cast<unsigned>(std::min((size + kThreads - 1) / kThreads, kMaxGroups));
  return cu.cuLaunchKernel(fill_, groups, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr);
}

}  // namespace xpud::drivers::cuda
