// Autocast: registers PyTorch's own lists of operators for our dispatch key.
#include <ATen/autocast_mode.h>

namespace xpud::shim {
namespace {

using namespace at;            // NOLINT: the macros below name types that change between torch versions
using namespace at::autocast;  // NOLINT: and members of this namespace

#define XPUD_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define XPUD_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define XPUD_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define XPUD_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(XPUD_LOWER_PRECISION)
  AT_FORALL_FP32(XPUD_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(XPUD_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(XPUD_PROMOTE)
}

}  // namespace
}  // namespace xpud::shim
