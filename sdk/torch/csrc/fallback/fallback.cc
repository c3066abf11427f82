#include "sdk/torch/csrc/fallback/fallback.h"

#include <torch/library.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "proto/base/mutex.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/fallback/complex.h"
#include "sdk/torch/csrc/fallback/host_call.h"

namespace xpud::shim {
namespace {

std::string_view Setting() {
  const char* value = std::getenv("XPUD_FALLBACK");
  return value == nullptr || *value == '\0' ? "warn" : value;
}

bool IsRefused() {
  static const bool refused = Setting() == "error";
  return refused;
}

// Returns the op and the dtypes of its tensors: "aten::sort (float32, int64)".
std::string Describe(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::string types;
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    types += (types.empty() ? "" : ", ") + std::string(c10::toString(value.toTensor().scalar_type()));
  }
  return toString(op.operator_name()) + (types.empty() ? "" : " (" + types + ")");
}

// The number of fallbacks of each op. Thread-safe.
class Counts {
 public:
  int64_t Add(const c10::OperatorHandle& op) {
    MutexLock lock(mutex_);
    return ++counts_[toString(op.operator_name())];
  }
  std::map<std::string, int64_t> Get() {
    MutexLock lock(mutex_);
    return counts_;
  }

 private:
  Mutex mutex_;
  std::map<std::string, int64_t> counts_ ABSL_GUARDED_BY(mutex_);
};

Counts& TheCounts() {
  static Counts* counts = new Counts;
  return *counts;
}

void FallbackForDispatcher(const c10::OperatorHandle& op, torch::jit::Stack* stack) { Fallback(op, stack); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&FallbackForDispatcher>());
}

}  // namespace

void CheckFallbackSetting() {
  TORCH_CHECK_VALUE(Setting() == "warn" || Setting() == "error", "XPUD_FALLBACK is \"", Setting(),
                    "\"; it may be \"warn\" (the default) or \"error\"");
}

void AnnounceFallback(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(!IsRefused(), "xpud has no kernel for ", Describe(op, stack),
                              ", and XPUD_FALLBACK=error forbids running it on the CPU");
  if (TheCounts().Add(op) == 1) {
    TORCH_WARN("xpud has no kernel for ", Describe(op, stack),
               ": it runs on the CPU, with copies both ways (XPUD_FALLBACK=error makes this an error)");
  }
}

void Fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const BelowAutocast scope;
  if (RunComplex(op, stack)) return;
  AnnounceFallback(op, *stack);
  CallOnHost(op, stack);
}

std::map<std::string, int64_t> FallbackCounts() { return TheCounts().Get(); }

}  // namespace xpud::shim
