#include "sdk/torch/csrc/engines/product.h"

#include <ATen/Context.h>

#include "proto/ops/families/matmul.h"
#include "proto/ops/named_call.h"

namespace xpud::shim {

void LaunchProduct(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
                   double beta, double alpha, int device) {
  int64_t mode = static_cast<int64_t>(ops::Activation::kNone);
  if (at::globalContext().deterministicAlgorithms()) mode |= ops::kDeterministicProduct;
  const ops::NamedOpCall<ops::MatmulCall> call(ops::MatmulCall<TensorRef>{
      .out = out, .a = a, .b = b, .c = c, .beta = beta, .alpha = alpha, .activation = mode});
  Execute(call.Of(ProductRow(), a.dtype), device);
}

}  // namespace xpud::shim
