// For tests: PTX of the kernels that the tests launch.
#pragma once

namespace xpud::drivers {

// clang-format off
//   add(u64* out, u64 addend)                  out[group] += addend
//   scale(float* out, float* in, float factor) out[i] = in[i] * factor; i is the global index
//   table(float* out)                          out[group] = 1 + group % 4
//   fault()                                    stores to an unmapped address
//   empty(u64, u64, u64)                       does nothing
//   spin(u64* flag)                            runs until *flag is not 0
//   hold(u64 ns)                               runs for `ns`
//   count(u64* out)                            counts in out[group] forever
//   distant(u64* out)                          out[group] = group, through the last word of 64 KiB of local memory
//   launches                                   a global of 8 bytes
// clang-format on
inline constexpr char kCudaKernels[] = R"(
.version 7.8
.target sm_70
.address_size 64
.visible .global .align 8 .u64 launches;
.visible .entry add(.param .u64 out, .param .u64 addend)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [out];
  ld.param.u64 %rd1, [addend];
  mov.u32 %r0, %ctaid.x;
  mul.wide.u32 %rd2, %r0, 8;
  add.u64 %rd3, %rd0, %rd2;
  ld.u64 %rd4, [%rd3];
  add.u64 %rd4, %rd4, %rd1;
  st.u64 [%rd3], %rd4;
  ret;
}
.visible .entry scale(.param .u64 out, .param .u64 in, .param .f32 factor)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<8>;
  .reg .f32 %f<3>;
  ld.param.u64 %rd0, [out];
  ld.param.u64 %rd1, [in];
  ld.param.f32 %f0, [factor];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  mul.wide.u32 %rd2, %r3, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.f32 %f1, [%rd3];
  mul.f32 %f1, %f1, %f0;
  add.u64 %rd4, %rd0, %rd2;
  st.f32 [%rd4], %f1;
  ret;
}
.visible .entry table(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .reg .f32 %f<2>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %ctaid.x;
  and.b32 %r1, %r0, 3;
  add.u32 %r1, %r1, 1;
  cvt.rn.f32.u32 %f0, %r1;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd2, %rd0, %rd1;
  st.f32 [%rd2], %f0;
  ret;
}
.visible .entry empty(.param .u64 a, .param .u64 b, .param .u64 c)
{
  ret;
}
.visible .entry spin(.param .u64 flag)
{
  .reg .pred %p<1>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [flag];
again:
  ld.volatile.global.u64 %rd1, [%rd0];
  setp.eq.u64 %p0, %rd1, 0;
  @%p0 bra again;
  ret;
}
.visible .entry count(.param .u64 out)
{
  .reg .b32 %r<1>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %ctaid.x;
  mul.wide.u32 %rd1, %r0, 8;
  add.u64 %rd0, %rd0, %rd1;
  mov.u64 %rd2, 0;
again:
  add.u64 %rd2, %rd2, 1;
  st.volatile.global.u64 [%rd0], %rd2;
  bra again;
}
.visible .entry hold(.param .u64 ns)
{
  .reg .pred %p<1>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [ns];
  mov.u64 %rd1, %globaltimer;
  add.u64 %rd1, %rd1, %rd0;
again:
  mov.u64 %rd2, %globaltimer;
  setp.lt.u64 %p0, %rd2, %rd1;
  @%p0 bra again;
  ret;
}
.extern .shared .align 8 .b8 local[];
.visible .const .align 4 .u32 distant_local_bytes = 65536;
.visible .entry distant(.param .u64 out)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd0, [out];
  mov.u32 %r0, %ctaid.x;
  cvt.u64.u32 %rd1, %r0;
  mov.u64 %rd2, local;
  st.volatile.shared.u64 [%rd2+65528], %rd1;
  ld.volatile.shared.u64 %rd3, [%rd2+65528];
  mul.wide.u32 %rd4, %r0, 8;
  add.u64 %rd5, %rd0, %rd4;
  st.u64 [%rd5], %rd3;
  ret;
}
.visible .entry fault()
{
  .reg .b64 %rd<2>;
  mov.u64 %rd0, 0x10;
  st.global.u64 [%rd0], %rd0;
  ret;
}
)";

}  // namespace xpud::drivers
