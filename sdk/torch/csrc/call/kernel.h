// How a function is registered with PyTorch's dispatcher as a kernel of xpud's.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <utility>

namespace xpud::shim {

// Switches autocast off in a scope. Autocast decides before a kernel runs, and its lists say which operators
// it casts. It must not cast again in operators that the kernel calls: results would have a type that the
// program did not ask for.
class BelowAutocast {
 public:
  BelowAutocast() : guard_(c10::DispatchKey::AutocastPrivateUse1) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

template <auto kFunction>
struct Kernel;
template <class Result, class... Args, Result (*kFunction)(Args...)>
struct Kernel<kFunction> {
  static Result Call(Args... arguments) {
    const BelowAutocast scope;
    return kFunction(std::forward<Args>(arguments)...);
  }
};

}  // namespace xpud::shim

// The counterpart of TORCH_FN for kernels of xpud's dispatch keys.
#define XPUD_FN(...) TORCH_FN((::xpud::shim::Kernel<&__VA_ARGS__>::Call))
