// Assertions about tensors, which do not wait: _assert_async.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/engines/device_check.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;

void AssertAsyncMessage(const Tensor& self, c10::string_view message) {
  if (!IsOnDevice(self) || !IsSupported(self.scalar_type()))
    return FallbackOf<at::_ops::_assert_async_msg>::Call(self, message);
  TORCH_CHECK(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  TORCH_CHECK(self.numel() < 2, "Boolean value of Tensor with more than one value is ambiguous");
  CheckOnDevice(self.eq(0), {message.data(), message.size()});
}

void AssertAsync(const Tensor& self) {
  AssertAsyncMessage(self, "Expected Tensor with single nonzero value, but got zero");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_assert_async", XPUD_FN(AssertAsync));
  m.impl("_assert_async.msg", XPUD_FN(AssertAsyncMessage));
}

}  // namespace
}  // namespace xpud::shim
