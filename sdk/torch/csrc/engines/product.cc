#include "sdk/torch/csrc/engines/product.h"

#include <ATen/Context.h>

#include "proto/ops/families/matmul.h"
#include "proto/ops/named_call.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {
namespace {

constexpr NamedActivation kActivations[] = {{"relu", ops::Activation::kRelu},
                                            {"gelu", ops::Activation::kGelu},
                                            {"gelu_tanh", ops::Activation::kGeluTanh}};

}  // namespace

void LaunchProduct(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
                   double beta, double alpha, int device, ops::Activation activation) {
  int64_t mode = static_cast<int64_t>(activation);
  if (at::globalContext().deterministicAlgorithms()) mode |= ops::kDeterministicProduct;
  const ops::NamedOpCall<ops::MatmulCall> call(ops::MatmulCall<TensorRef>{
      .out = out, .a = a, .b = b, .c = c, .beta = beta, .alpha = alpha, .activation = mode});
  Execute(call.Of(ProductRow(), a.dtype), device);
}

// cuBLASLt has relu alone (`Finishes` in cublaslt_plan.cc), and not for all types.
std::vector<NamedActivation> ActivationsOfProducts(int device) {
  if (Runtime::Get().device(device).kind != "cpu") return {};
  return {std::begin(kActivations), std::end(kActivations)};
}

ops::Activation ActivationNamed(std::string_view name) {
  for (const NamedActivation& known : kActivations)
    if (known.name == name) return known.activation;
  TORCH_CHECK_VALUE(false, "no activation ", name, "; there are relu, gelu and gelu_tanh");
}

}  // namespace xpud::shim
