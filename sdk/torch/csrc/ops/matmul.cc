// Matrix products: ATen's forms, run by one row of the op table.
#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <initializer_list>
#include <vector>

#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/engines/copy.h"
#include "sdk/torch/csrc/engines/integer_product.h"
#include "sdk/torch/csrc/engines/product.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

bool IsServed(const at::Tensor& a) {
  return IsOnDevice(a) && IsSupported(a.scalar_type(), ProductRow().dtypes);
}

void CheckTypes(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", a.dtype(), " != ", b.dtype());
  CheckSameDevice(a.device(), b.device());
}

// Throws ATen's error if `addend` does not broadcast to `sizes`.
void CheckAddend(const at::Tensor& addend, c10::IntArrayRef sizes) {
  const bool row = addend.dim() == 1 && addend.size(0) == sizes.back();
  if (!row && addend.sizes() != sizes) (void)addend.expand(sizes);
}

// The result without the product.
at::Tensor& ScaleInto(at::Tensor& out, const at::Tensor& addend, const at::Scalar& beta) {
  return addend.defined() && beta.toDouble() != 0 ? out.copy_(addend.mul(beta)) : out.zero_();
}

// Multiplies matrices (rank 2) or batches of them (rank 3). `addend` may be undefined. `given`: where the
// result goes, if it is defined and fits (FitsProduct). REQUIRES: without an activation, or k is not 0.
at::Tensor Product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend, const at::Scalar& beta,
                   const at::Scalar& alpha, const at::Tensor& given = {},
                   ops::Activation activation = ops::Activation::kNone) {
  CheckTypes(a, b);
  c10::SmallVector<int64_t, 3> sizes(a.sizes());
  sizes.back() = b.size(-1);
  if (addend.defined()) {
    TORCH_CHECK(addend.scalar_type() == b.scalar_type(), "self and mat2 must have the same dtype, but got ",
                addend.scalar_type(), " and ", b.scalar_type());
    CheckSameDevice(a.device(), addend.device());
    CheckAddend(addend, sizes);
  }
  at::Tensor out = given.defined() ? given : MakeEmpty(sizes, a.scalar_type(), a.device());
  if (out.numel() == 0) return out;
  // With a factor of 0 the operands are not read, as in BLAS: their NaN and infinities have no effect.
  if (a.size(-1) == 0 || alpha.toDouble() == 0) return ScaleInto(out, addend, beta);
  Broadcast shape(out.sizes());
  TensorRef c;
  if (addend.defined() && beta.toDouble() != 0) {
    shape.Add(addend);
    c = shape.Ref(0, addend, *ToDType(addend.scalar_type()));
  }
  LaunchProduct(Describe(out), Describe(a), Describe(b), c, beta.toDouble(), alpha.toDouble(),
                DeviceIndexOf(out), activation);
  return out;
}

// Whether the product can be written to `out` directly: it has the result's form and shares no memory with
// what is read.
bool FitsProduct(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& addend) {
  const auto apart = [&](const at::Tensor& read) {
    return !read.defined() || at::get_overlap_status(out, read) == at::MemOverlapStatus::No;
  };
  const bool same_form = IsServed(a) && a.dim() == b.dim() && out.dim() == a.dim() &&
                         out.scalar_type() == a.scalar_type() && out.device() == a.device() &&
                         out.size(-1) == b.size(-1) &&
                         out.sizes().slice(0, out.dim() - 1) == a.sizes().slice(0, a.dim() - 1);
  return same_form && out.is_contiguous() && apart(a) && apart(b) && apart(addend);
}

// Copies what `compute` returns to `out`, after ATen's checks of an out=.
template <typename Compute>
at::Tensor& CopyInto(at::Tensor& out, std::initializer_list<at::Tensor> inputs, const Compute& compute) {
  at::assert_no_internal_overlap(out);
  for (const at::Tensor& input : inputs) at::assert_no_partial_overlap(out, input);
  const at::Tensor result = compute();
  CheckSameDevice(result.device(), out.device());
  TORCH_CHECK(out.scalar_type() == result.scalar_type(), "Expected out tensor to have dtype ", result.dtype(),
              ", but got ", out.dtype(), " instead");
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

at::Tensor Mm(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 2, "self must be a matrix");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  if (HasIntegerProduct(a, b)) return IntegerProduct(a, b);
  if (!IsServed(a)) return FallbackOf<at::_ops::mm>::Call(a, b);
  return Product(a, b, {}, 0, 1);
}

at::Tensor Addmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  TORCH_CHECK(a.dim() == 2, "mat1 must be a matrix, got ", a.dim(), "-D tensor");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix, got ", b.dim(), "-D tensor");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  if (!IsServed(a)) return FallbackOf<at::_ops::addmm>::Call(self, a, b, beta, alpha);
  return Product(a, b, self, beta, alpha);
}

void CheckBatches(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(b.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(a.size(0) == b.size(0) && a.size(2) == b.size(1),
              "Expected size for first two dimensions of batch2 tensor to be: [", a.size(0), ", ", a.size(2),
              "] but got: [", b.size(0), ", ", b.size(1), "].");
}

at::Tensor Bmm(const at::Tensor& a, const at::Tensor& b) {
  CheckBatches(a, b);
  if (!IsServed(a)) return FallbackOf<at::_ops::bmm>::Call(a, b);
  return Product(a, b, {}, 0, 1);
}

at::Tensor Baddbmm(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  CheckBatches(a, b);
  if (!IsServed(a)) return FallbackOf<at::_ops::baddbmm>::Call(self, a, b, beta, alpha);
  return Product(a, b, self, beta, alpha);
}

// Whether matrices (rank 2) or batches of them (rank 3) have sizes that can be multiplied.
bool Multiplies(const at::Tensor& a, const at::Tensor& b, int64_t rank) {
  if (a.dim() != rank || b.dim() != rank || a.size(-1) != b.size(-2)) return false;
  return rank == 2 || a.size(0) == b.size(0);
}

at::Tensor& MmOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (!Multiplies(a, b, 2) || !FitsProduct(out, a, b, {}))
    return CopyInto(out, {a, b}, [&] { return Mm(a, b); });
  Product(a, b, {}, 0, 1, out);
  return out;
}

at::Tensor& AddmmOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta,
                     const at::Scalar& alpha, at::Tensor& out) {
  if (!Multiplies(a, b, 2) || !FitsProduct(out, a, b, self))
    return CopyInto(out, {self, a, b}, [&] { return Addmm(self, a, b, beta, alpha); });
  Product(a, b, self, beta, alpha, out);
  return out;
}

at::Tensor& BmmOut(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  if (!Multiplies(a, b, 3) || !FitsProduct(out, a, b, {}))
    return CopyInto(out, {a, b}, [&] { return Bmm(a, b); });
  Product(a, b, {}, 0, 1, out);
  return out;
}

at::Tensor& BaddbmmOut(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                       const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  if (!Multiplies(a, b, 3) || !FitsProduct(out, a, b, self))
    return CopyInto(out, {self, a, b}, [&] { return Baddbmm(self, a, b, beta, alpha); });
  Product(a, b, self, beta, alpha, out);
  return out;
}

at::Tensor Addmv(const at::Tensor& self, const at::Tensor& a, const at::Tensor& v, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  TORCH_CHECK(a.dim() == 2 && v.dim() == 1 && self.dim() <= 1, "vector + matrix @ vector expected, got ",
              self.dim(), ", ", a.dim(), ", ", v.dim());
  TORCH_CHECK(a.size(1) == v.size(0) && (self.dim() == 0 || self.size(0) == a.size(0) || self.size(0) == 1),
              "size mismatch, got input (", self.numel(), "), mat (", a.size(0), "x", a.size(1), "), vec (",
              v.size(0), ")");
  if (!IsServed(a)) return FallbackOf<at::_ops::addmv>::Call(self, a, v, beta, alpha);
  const at::Tensor addend = self.dim() == 1 ? self.unsqueeze(1) : self;
  return Product(a, v.unsqueeze(1), addend, beta, alpha).squeeze(1);
}

at::Tensor Dot(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ", b.dim(),
              "D tensors");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(),
              "dot : expected both vectors to have same dtype, but found ", a.scalar_type(), " and ",
              b.scalar_type());
  TORCH_CHECK(a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(), "] and src [",
              b.numel(), "] to have the same number of elements, but got ", a.numel(), " and ", b.numel(),
              " elements respectively");
  if (!IsServed(a)) return FallbackOf<at::_ops::dot>::Call(a, b);
  return Product(a.unsqueeze(0), b.unsqueeze(1), {}, 0, 1).view(c10::IntArrayRef{});
}

// ---- linear: [.., K] as a matrix, without creating views ----

struct Rows {
  explicit Rows(const at::Tensor& tensor)
      : held(tensor.dim() == 2 ? tensor : Contiguous(tensor)),
        sizes{held.numel() / std::max<int64_t>(held.size(-1), 1), held.size(-1)} {
    if (held.size(-1) == 0) sizes[0] = c10::multiply_integers(held.sizes().begin(), held.sizes().end() - 1);
  }
  TensorRef Ref() const { return held.dim() == 2 ? Describe(held) : DescribeAs(held, sizes); }
  at::Tensor held;
  std::array<int64_t, 2> sizes;
};

// The transposed matrix.
struct Transposed {
  explicit Transposed(const TensorRef& matrix) : ref(matrix) {
    sizes = {matrix.sizes[1], matrix.sizes[0]};
    strides = matrix.strides != nullptr ? std::array<int64_t, 2>{matrix.strides[1], matrix.strides[0]}
                                        : std::array<int64_t, 2>{1, matrix.sizes[1]};
    ref.sizes = sizes.data();
    ref.strides = strides.data();
  }
  TensorRef ref;
  std::array<int64_t, 2> sizes;
  std::array<int64_t, 2> strides;
};

// Tells profilers about a product that PyTorch's own devices run as an operator of its own. They compute the
// number of operations from the sizes of the matrices. Inactive, it costs a few nanoseconds.
#define XPUD_RECORD_PRODUCT(name, ...) RECORD_FUNCTION(name, (std::vector<c10::IValue>{__VA_ARGS__}))

at::Tensor Linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  const bool has_bias = bias.has_value() && bias->defined();
  if (weight.dim() == 1 || input.dim() == 0 || !IsServed(input)) {
    const at::Tensor product = at::matmul(input, weight.t());
    return has_bias ? product.add(*bias) : product;
  }
  TORCH_CHECK(weight.dim() == 2 && input.size(-1) == weight.size(1),
              "mat1 and mat2 shapes cannot be multiplied (",
              input.numel() / std::max<int64_t>(input.size(-1), 1), "x", input.size(-1), " and ",
              weight.size(1), "x", weight.size(0), ")");
  CheckTypes(input, weight);
  c10::SmallVector<int64_t, 4> sizes(input.sizes());
  sizes.back() = weight.size(0);
  const std::array<int64_t, 2> matrix = {c10::multiply_integers(sizes.begin(), sizes.end() - 1),
                                         sizes.back()};
  if (has_bias) {
    CheckTypes(*bias, input);
    CheckAddend(*bias, matrix);
  }
  at::Tensor out = MakeEmpty(sizes, input.scalar_type(), input.device());
  if (out.numel() == 0) return out;
  if (input.size(-1) == 0) return has_bias ? out.copy_(*bias) : out.zero_();
  const Rows rows(input);
  const Transposed weights(Describe(weight));
  Broadcast shape(matrix);
  TensorRef addend;
  if (has_bias) {
    shape.Add(*bias);
    addend = shape.Ref(0, *bias, *ToDType(bias->scalar_type()));
  }
  const auto launch = [&] {
    LaunchProduct(DescribeAs(out, matrix), rows.Ref(), weights.ref, addend, 1, 1, DeviceIndexOf(out));
  };
  if (has_bias) {
    XPUD_RECORD_PRODUCT("aten::addmm", *bias, input, weight);
    launch();
  } else {
    XPUD_RECORD_PRODUCT("aten::mm", input, weight);
    launch();
  }
  return out;
}

at::Tensor WeightGradient(const Rows& gradient, const Rows& input, const at::Tensor& weight) {
  at::Tensor out = MakeEmpty(weight.sizes(), weight.scalar_type(), weight.device());
  if (out.numel() == 0) return out;
  if (input.sizes[0] == 0) return out.zero_();
  const TensorRef plain = gradient.Ref();
  const Transposed transposed(plain);
  XPUD_RECORD_PRODUCT("aten::mm", gradient.held.view(gradient.sizes).t(), input.held);
  LaunchProduct(Describe(out), transposed.ref, input.Ref(), {}, 0, 1, DeviceIndexOf(out));
  return out;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> LinearBackward(const at::Tensor& self,
                                                              const at::Tensor& gradient,
                                                              const at::Tensor& weight,
                                                              std::array<bool, 3> mask) {
  at::Tensor input_gradient, weight_gradient, bias_gradient;
  if (!IsServed(self) || weight.dim() == 1) {
    const at::Tensor flat = gradient.reshape({-1, gradient.size(-1)});
    if (mask[0]) input_gradient = at::matmul(gradient, weight.conj());
    if (mask[1]) weight_gradient = flat.t().matmul(self.reshape({-1, self.size(-1)}).conj());
    if (mask[2]) bias_gradient = flat.sum(0);
    return {input_gradient, weight_gradient, bias_gradient};
  }
  const Rows rows(gradient);
  if (mask[0]) {
    input_gradient = MakeEmpty(self.sizes(), self.scalar_type(), self.device());
    const std::array<int64_t, 2> sizes = {rows.sizes[0], weight.size(1)};
    if (input_gradient.numel() > 0 && weight.size(0) == 0)
      input_gradient.zero_();
    else if (input_gradient.numel() > 0) {
      XPUD_RECORD_PRODUCT("aten::mm", gradient, weight);
      LaunchProduct(DescribeAs(input_gradient, sizes), rows.Ref(), Describe(weight), {}, 0, 1,
                    DeviceIndexOf(self));
    }
  }
  if (mask[1]) weight_gradient = WeightGradient(rows, Rows(self), weight);
  if (mask[2]) bias_gradient = rows.held.reshape(rows.sizes).sum(0);
  return {input_gradient, weight_gradient, bias_gradient};
}

// ---- products of compiled graphs (torch_xpud/inductor/activations.py) ----

at::Tensor Activate(const at::Tensor& value, ops::Activation activation) {
  if (activation == ops::Activation::kRelu) return at::relu(value);
  return at::gelu(value, activation == ops::Activation::kGelu ? "none" : "tanh");
}

// activation(a b + bias), of matrices, or of batches of them without a bias.
at::Tensor ActivatedProduct(const std::optional<at::Tensor>& bias, const at::Tensor& a, const at::Tensor& b,
                            c10::string_view name) {
  const ops::Activation activation = ActivationNamed(name);
  const bool has_bias = bias.has_value() && bias->defined();
  TORCH_CHECK(Multiplies(a, b, 2) || (Multiplies(a, b, 3) && !has_bias), "activated_product of sizes ",
              a.sizes(), " and ", b.sizes(), has_bias ? " with a bias" : "");
  if (!IsServed(a) || a.size(-1) == 0)
    return Activate(has_bias ? at::addmm(*bias, a, b) : at::matmul(a, b), activation);
  if (!has_bias) {
    XPUD_RECORD_PRODUCT(a.dim() == 2 ? "aten::mm" : "aten::bmm", a, b);
    return Product(a, b, {}, 0, 1, {}, activation);
  }
  XPUD_RECORD_PRODUCT("aten::addmm", *bias, a, b);
  return Product(a, b, *bias, 1, 1, {}, activation);
}

// The result's fake tensor is made in Python.
TORCH_LIBRARY_FRAGMENT(xpud, m) {
  m.def("activated_product(Tensor? bias, Tensor a, Tensor b, str activation) -> Tensor",
        {at::Tag::flexible_layout, at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(xpud, PrivateUse1, m) { m.impl("activated_product", XPUD_FN(ActivatedProduct)); }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("mm", XPUD_FN(Mm));
  m.impl("mm.out", XPUD_FN(MmOut));
  m.impl("addmm.out", XPUD_FN(AddmmOut));
  m.impl("bmm.out", XPUD_FN(BmmOut));
  m.impl("baddbmm.out", XPUD_FN(BaddbmmOut));
  m.impl("addmm", XPUD_FN(Addmm));
  m.impl("bmm", XPUD_FN(Bmm));
  m.impl("baddbmm", XPUD_FN(Baddbmm));
  m.impl("addmv", XPUD_FN(Addmv));
  m.impl("dot", XPUD_FN(Dot));
  m.impl("linear", XPUD_FN(Linear));
  m.impl("linear_backward", XPUD_FN(LinearBackward));
}

}  // namespace
}  // namespace xpud::shim
