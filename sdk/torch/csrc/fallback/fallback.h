// Fallback for ops and element types without a device kernel: they run on the CPU, with one warning for each
// op. With XPUD_FALLBACK=error they fail instead.
#pragma once

#include <ATen/core/boxing/BoxedKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/native/CPUFallback.h>

#include <cstdint>
#include <map>
#include <string>

namespace xpud::shim {

// Throws ValueError if XPUD_FALLBACK is neither "warn" nor "error".
void CheckFallbackSetting();

// Counts the call of `op`, and warns of the first. Throws NotImplementedError if fallbacks are forbidden.
void AnnounceFallback(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

// Computes on the device if the operator's numbers are complex and complex.h serves it.
void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Returns how often each operator ("aten::sort.stable") fell back in this process.
std::map<std::string, int64_t> FallbackCounts();

// Calls Fallback from an unboxed kernel of ATen operator Op (at::ATEN_OP...).
template <class Op>
struct FallbackOf;
template <class Op>
  requires requires { typename Op::schema; }
struct FallbackOf<Op> {
  template <class... Args>
  static decltype(auto) Call(Args&&... args) {
    return at::native::call_fallback_fn<&Fallback, Op>::call(std::forward<Args>(args)...);
  }
};

}  // namespace xpud::shim
