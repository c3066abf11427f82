#include "sdk/torch/csrc/fallback/complex.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/call/variants.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using Values = c10::ArrayRef<c10::IValue>;

// The parts of a tensor. A real tensor has no imaginary part.
struct Parts {
  bool is_real() const { return !im.defined(); }
  Tensor re, im;
};

// REQUIRES: no conjugation or negation is pending.
Parts PartsOf(const Tensor& tensor) {
  if (!tensor.is_complex()) return {tensor, {}};
  const Tensor view = at::view_as_real(tensor);
  return {view.select(-1, 0), view.select(-1, 1)};
}

// A number becomes a CPU tensor without dimensions, whose value is sent in the command.
Parts PartsOf(const c10::IValue& value) {
  return PartsOf(value.isTensor() ? value.toTensor().resolve_conj().resolve_neg()
                                  : at::scalar_tensor(value.toScalar(), value.toScalar().type()));
}

// Into a part of the result.
void MultiplyInto(Tensor out, const Tensor& a, const Tensor& b) { at::mul_out(out, a, b); }
void DivideInto(Tensor out, const Tensor& a, const Tensor& b) { at::div_out(out, a, b); }
void AddInto(Tensor out, const Tensor& a, const Tensor& b, const at::Scalar& alpha) {
  at::add_out(out, a, b, alpha);
}
void ArcTangentInto(Tensor out, const Tensor& a, const Tensor& b) { at::atan2_out(out, a, b); }

// ---- kernels: each fills `out`, a new tensor of the right shape and dtype, from the arguments ----

void Multiply(const Parts& a, const Parts& b, const Parts& out) {
  if (a.is_real()) return Multiply(b, a, out);
  MultiplyInto(out.re, a.re, b.re);
  MultiplyInto(out.im, a.im, b.re);
  if (b.is_real()) return;
  out.re.sub_(a.im.mul(b.im));
  out.im.add_(a.re.mul(b.im));
}

// Divides by the divisor's larger part first (Smith), so that its square neither overflows nor vanishes and a
// number by an infinite one is 0.
void Divide(const Parts& a, const Parts& b, const Parts& out) {
  if (b.is_real()) {
    DivideInto(out.re, a.re, b.re);
    DivideInto(out.im, a.im, b.re);
    return;
  }
  const Tensor is_re = b.re.abs().ge(b.im.abs());
  Tensor larger = at::where(is_re, b.re, b.im);
  const Tensor smaller = at::where(is_re, b.im, b.re), is_zero = larger.eq(0);
  larger.masked_fill_(is_zero, 0);  // without its sign, as PyTorch divides by 0
  const Tensor ratio = smaller.div(larger).masked_fill_(is_zero, 0);
  const Tensor factor = larger.add(smaller.mul(ratio)).reciprocal_();
  const Tensor first = at::where(is_re, a.re, a.im), second = at::where(is_re, a.im, a.re);
  MultiplyInto(out.re, first.add(second.mul(ratio)), factor);
  const Tensor difference = second.sub(first.mul(ratio));  // with the other sign if `larger` is b.im
  MultiplyInto(out.im, at::where(is_re, difference, difference.neg()), factor);
}

void Add(Values values, const Tensor& result, bool subtracts) {
  const Parts a = PartsOf(values[0]), b = PartsOf(values[1]);
  const at::Scalar alpha = values.size() > 2 && values[2].isScalar() ? values[2].toScalar() : 1;
  const Parts out = PartsOf(result);
  Parts scaled = b;
  if (alpha.isComplex()) {
    scaled = {at::empty_like(b.re), at::empty_like(b.re)};
    Multiply(PartsOf(c10::IValue(alpha)), b, scaled);
  }
  const at::Scalar factor = alpha.isComplex() ? at::Scalar(subtracts ? -1 : 1) : subtracts ? -alpha : alpha;
  AddInto(out.re, a.re, scaled.re, factor);
  if (scaled.is_real()) {
    out.im.copy_(a.im);
    return;
  }
  if (a.is_real()) {
    out.im.copy_(scaled.im.mul(factor));
    return;
  }
  AddInto(out.im, a.im, scaled.im, factor);
}

// What follows gives C's results (its annex G) where a part is infinite, NaN or 0, and a product of the
// parts' functions would be NaN.

void Exponential(const Parts& a, const Parts& out) {
  const Tensor length = a.re.exp();
  const Tensor is_real = a.im.eq(0), has_no_angle = a.im.isfinite().logical_not_().logical_and_(a.re.isinf());
  out.re.copy_(at::where(is_real.logical_or(has_no_angle), length, length.mul(a.im.cos())));
  const Tensor im = length.mul(a.im.sin()).masked_fill_(has_no_angle.logical_and(a.re.lt(0)), 0);
  out.im.copy_(at::where(is_real, a.im, im));
}

void Cosine(const Parts& a, const Parts& out) {
  const Tensor has_no_angle = a.re.isfinite().logical_not_();
  const Tensor re = a.re.cos().mul_(a.im.cosh());
  out.re.copy_(re.masked_fill_(has_no_angle.logical_and(a.im.isinf()), HUGE_VAL));
  const Tensor im = a.re.sin().neg_().mul_(a.im.sinh()).masked_fill_(has_no_angle.logical_and(a.im.eq(0)), 0);
  out.im.copy_(at::where(a.re.eq(0), at::copysign(at::ones_like(a.im), a.im).mul_(a.re).neg_(), im));
}

void Sine(const Parts& a, const Parts& out) {
  const Tensor has_no_angle = a.re.isfinite().logical_not_();
  out.re.copy_(at::where(a.re.eq(0), a.re, a.re.sin().mul_(a.im.cosh())));
  const Tensor im =
      a.re.cos().mul_(a.im.sinh()).masked_fill_(has_no_angle.logical_and(a.im.isinf()), HUGE_VAL);
  out.im.copy_(at::where(a.im.eq(0), a.im, im));
}

void Logarithm(const Parts& a, const Parts& out) {
  out.re.copy_(at::hypot(a.re, a.im).log_());
  ArcTangentInto(out.im, a.im, a.re);
}

// With t = sqrt((|a| + |re|) / 2), the root is t + i im / 2t on the right half of the plane.
void SquareRoot(const Parts& a, const Parts& out) {
  const Tensor t = at::hypot(a.re, a.im).mul_(0.5).add_(a.re.abs().mul_(0.5)).sqrt_();
  const Tensor other = at::where(t.eq(0), a.im, a.im.div(t.mul(2)));
  const Tensor right = a.re.ge(0), is_high = a.im.isinf();
  out.re.copy_(at::where(right, t, other.abs()).masked_fill_(is_high, HUGE_VAL));
  out.im.copy_(at::where(is_high, a.im, at::where(right, other, at::copysign(t, a.im))));
}

// a / |a|; 0 for 0.
void Sign(const Parts& a, const Parts& out) {
  const Tensor length = at::hypot(a.re, a.im);
  const Tensor divisor = length.masked_fill(length.eq(0), 1);
  DivideInto(out.re, a.re, divisor);
  DivideInto(out.im, a.im, divisor);
}

// Multiplies two matrices, or batches of them, by four real products.
void Product(const Tensor& a, const Tensor& b, const Tensor& result) {
  const auto dense = [](const c10::IValue& value) {
    const Parts parts = PartsOf(value);
    return Parts{parts.re.contiguous(), parts.im.contiguous()};
  };
  const Parts x = dense(a), y = dense(b);
  const auto product = [](const Tensor& addend, const Tensor& m, const Tensor& n, int sign) {
    return m.dim() == 2 ? at::addmm(addend, m, n, 1, sign) : at::baddbmm(addend, m, n, 1, sign);
  };
  const Parts out = PartsOf(result);
  out.re.copy_(product(at::matmul(x.re, y.re), x.im, y.im, -1));
  out.im.copy_(product(at::matmul(x.re, y.im), x.im, y.re, 1));
}

// result = beta * addend + alpha * a b
void AddProduct(Values values, const Tensor& result) {
  const Tensor &addend = values[0].toTensor(), &a = values[1].toTensor(), &b = values[2].toTensor();
  const bool vector = b.dim() == 1;
  Tensor product = at::empty(result.sizes(), result.options());
  Product(a, vector ? b.unsqueeze(1) : b, vector ? product.unsqueeze(1) : product);
  const at::Scalar beta = values[3].toScalar(), alpha = values[4].toScalar();
  if (!alpha.equal(1)) product = product.mul(alpha);
  if (!beta.equal(0)) product = product.add(beta.equal(1) ? addend : addend.mul(beta));
  result.copy_(product);
}

void Dot(const Tensor& a, const Tensor& b, const Tensor& result) {
  Product(a.unsqueeze(0), b.unsqueeze(1), result.view({1, 1}));
}

// Sum and mean: the parts do not mix.
void Reduce(Values values, const Tensor& result, bool mean) {
  const Tensor self = values[0].toTensor().resolve_conj().resolve_neg().to(result.scalar_type());
  std::vector<int64_t> dims;
  if (values.size() > 2 && values[1].isIntList()) dims = values[1].toIntVector();
  for (int64_t& dim : dims) dim = at::maybe_wrap_dim(dim, self.dim());
  if (dims.empty()) {
    for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  const Tensor view = at::view_as_real(self);
  if (self.dim() == 0) {
    result.copy_(self);
    return;
  }
  const Tensor reduced = mean ? view.mean(dims) : view.sum(dims);
  at::view_as_real(result).copy_(reduced.view_as(at::view_as_real(result)));
}

Tensor IsEqual(Values values) {
  const Parts a = PartsOf(values[0]), b = PartsOf(values[1]);
  const Tensor re = a.re.eq(b.re);
  if (a.is_real()) return re.logical_and(b.im.eq(0));
  return re.logical_and(b.is_real() ? a.im.eq(0) : a.im.eq(b.im));
}

// For operators that move elements: complex numbers as pairs of real ones.
Tensor Pairs(const c10::IValue& value) {
  return at::view_as_real(value.toTensor().resolve_conj().resolve_neg());
}

// `out` may be undefined.
void CheckPair(Values values, const Tensor& out) {
  const at::ScalarType first = values[0].toTensor().scalar_type(),
                       second = values[1].toTensor().scalar_type();
  TORCH_CHECK(first == second, "Expected object of scalar type ", first, " but got scalar type ", second,
              " for second argument");
  TORCH_CHECK(!out.defined() || c10::toComplexType(first) == out.scalar_type(),
              "Expected object of scalar type ", c10::toComplexType(first), " but got scalar type ",
              out.scalar_type(), " for argument 'out'");
}

template <void (*Function)(const Parts&, const Parts&)>
void Unary(Values values, const Tensor& result) {
  Function(PartsOf(values[0]), PartsOf(result));
}

// ---- the operators ----

using Kernel = void (*)(Values, const Tensor&);

const std::map<std::string_view, Kernel>& Kernels() {
  static const auto* kernels = new std::map<std::string_view, Kernel>{
      {"abs", [](Values v, const Tensor& out) { out.copy_(at::hypot(PartsOf(v[0]).re, PartsOf(v[0]).im)); }},
      {"add", [](Values v, const Tensor& out) { Add(v, out, false); }},
      {"addmm", AddProduct},
      {"addmv", AddProduct},
      {"angle",
       [](Values v, const Tensor& out) { out.copy_(at::atan2(PartsOf(v[0]).im, PartsOf(v[0]).re)); }},
      {"baddbmm", AddProduct},
      {"bmm", [](Values v, const Tensor& out) { Product(v[0].toTensor(), v[1].toTensor(), out); }},
      {"complex",
       [](Values v, const Tensor& out) {
         PartsOf(out).re.copy_(v[0].toTensor());
         PartsOf(out).im.copy_(v[1].toTensor());
       }},
      {"conj_physical", [](Values v, const Tensor& out) { out.copy_(v[0].toTensor().conj()); }},
      {"_conj_physical", [](Values v, const Tensor& out) { out.copy_(v[0].toTensor().conj()); }},
      {"cos", Unary<Cosine>},
      {"div",
       [](Values v, const Tensor& out) {
         Parts a = PartsOf(v[0]);
         if (a.is_real()) a.im = at::zeros_like(a.re);
         Divide(a, PartsOf(v[1]), PartsOf(out));
       }},
      {"dot", [](Values v, const Tensor& out) { Dot(v[0].toTensor(), v[1].toTensor(), out); }},
      {"eq", [](Values v, const Tensor& out) { out.copy_(IsEqual(v)); }},
      {"exp", Unary<Exponential>},
      {"cumsum",
       [](Values v, const Tensor& out) {
         if (out.dim() == 0) {
           out.copy_(v[0].toTensor());
           return;
         }
         const Tensor self = v[0].toTensor().resolve_conj().resolve_neg().to(out.scalar_type());
         at::view_as_real(out).copy_(
             at::view_as_real(self).cumsum(at::maybe_wrap_dim(v[1].toInt(), out.dim())));
       }},
      {"flip",
       [](Values v, const Tensor& out) {
         std::vector<int64_t> dims = v[1].toIntVector();
         for (int64_t& dim : dims) dim = at::maybe_wrap_dim(dim, out.dim());
         if (out.dim() == 0) dims.clear();
         at::view_as_real(out).copy_(Pairs(v[0]).flip(dims));
       }},
      {"gather",
       [](Values v, const Tensor& out) {
         const int64_t dim = at::maybe_wrap_dim(v[1].toInt(), v[0].toTensor().dim());
         const Tensor& index = v[2].toTensor();
         std::vector<int64_t> sizes(index.sizes().vec());
         sizes.push_back(2);
         at::view_as_real(out).copy_(Pairs(v[0]).gather(dim, index.unsqueeze(-1).expand(sizes)));
       }},
      {"index_add",
       [](Values v, const Tensor& out) {
         const int64_t dim = at::maybe_wrap_dim(v[1].toInt(), out.dim());
         const Tensor source =
             v[4].toScalar().equal(1) ? v[3].toTensor() : v[3].toTensor().mul(v[4].toScalar());
         at::view_as_real(out).copy_(Pairs(v[0]).index_add(dim, v[2].toTensor(), Pairs(source)));
       }},
      {"index_select",
       [](Values v, const Tensor& out) {
         const int64_t dim = at::maybe_wrap_dim(v[1].toInt(), v[0].toTensor().dim());
         at::view_as_real(out).copy_(Pairs(v[0]).index_select(dim, v[2].toTensor()));
       }},
      {"isnan",
       [](Values v, const Tensor& out) {
         out.copy_(PartsOf(v[0]).re.isnan().logical_or_(PartsOf(v[0]).im.isnan()));
       }},
      {"log", Unary<Logarithm>},
      {"masked_fill",
       [](Values v, const Tensor& out) {
         const Tensor value =
             v[2].isTensor() ? v[2].toTensor() : at::scalar_tensor(v[2].toScalar(), out.options());
         const Tensor pairs = Pairs(value.to(out.options()));
         at::view_as_real(out).copy_(at::where(v[1].toTensor().unsqueeze(-1), pairs, Pairs(v[0])));
       }},
      {"mean", [](Values v, const Tensor& out) { Reduce(v, out, true); }},
      {"mm", [](Values v, const Tensor& out) { Product(v[0].toTensor(), v[1].toTensor(), out); }},
      {"mul", [](Values v, const Tensor& out) { Multiply(PartsOf(v[0]), PartsOf(v[1]), PartsOf(out)); }},
      {"ne", [](Values v, const Tensor& out) { out.copy_(IsEqual(v).logical_not_()); }},
      {"neg", [](Values v, const Tensor& out) { at::view_as_real(out).copy_(Pairs(v[0]).neg()); }},
      {"polar",
       [](Values v, const Tensor& out) {
         const Parts parts = PartsOf(out);
         MultiplyInto(parts.re, v[0].toTensor(), v[1].toTensor().cos());
         MultiplyInto(parts.im, v[0].toTensor(), v[1].toTensor().sin());
       }},
      {"reciprocal", Unary<[](const Parts& a, const Parts& out) {
         Divide({at::ones_like(a.re), at::zeros_like(a.re)}, a, out);
       }>},
      {"rsub",
       [](Values v, const Tensor& out) {
         out.copy_(
             at::sub(v[1].isTensor() ? v[1].toTensor() : at::scalar_tensor(v[1].toScalar(), out.options()),
                     v[0].toTensor(), v[2].toScalar()));
       }},
      {"sgn", Unary<Sign>},
      {"sin", Unary<Sine>},
      {"sqrt", Unary<SquareRoot>},
      {"sub", [](Values v, const Tensor& out) { Add(v, out, true); }},
      {"sum", [](Values v, const Tensor& out) { Reduce(v, out, false); }},
      {"vdot", [](Values v, const Tensor& out) { Dot(v[0].toTensor().conj(), v[1].toTensor(), out); }},
      {"where",
       [](Values v, const Tensor& out) {
         const auto pairs = [&](size_t i) { return Pairs(v[i].toTensor().to(out.options())); };
         at::view_as_real(out).copy_(at::where(v[0].toTensor().unsqueeze(-1), pairs(1), pairs(2)));
       }},
  };
  return *kernels;
}

// Returns "mul" for aten::mul.Tensor, aten::mul_.Tensor and aten::mul.out.
std::string_view BaseName(const c10::FunctionSchema& schema) {
  std::string_view name = schema.name();
  name.remove_prefix(name.find("::") + 2);
  if (VariantOf(schema) == Variant::kInPlace && name.ends_with('_')) name.remove_suffix(1);
  return name;
}

// The powers of programs and their gradients; other exponents are left to the CPU.
Kernel PowerKernel(Values values) {
  if (values.size() < 2 || !values[0].isTensor() || !values[1].isScalar()) return nullptr;
  const at::Scalar exponent = values[1].toScalar();
  if (exponent.equal(2)) {
    return [](Values v, const Tensor& out) { Multiply(PartsOf(v[0]), PartsOf(v[0]), PartsOf(out)); };
  }
  if (exponent.equal(1)) return [](Values v, const Tensor& out) { out.copy_(v[0].toTensor()); };
  if (exponent.equal(0.5)) return Unary<SquareRoot>;
  if (exponent.equal(-1)) return Kernels().at("reciprocal");
  return nullptr;
}

// Left to the CPU: indexing of numbers without dimensions, and products whose result may be a conjugate.
bool IsSpecial(std::string_view name, Values values) {
  const auto any = [&](auto holds) {
    return std::ranges::any_of(
        values, [&](const c10::IValue& value) { return value.isTensor() && holds(value.toTensor()); });
  };
  if (name == "gather" || name == "index_select" || name == "index_add")
    return any([](const Tensor& tensor) { return tensor.dim() == 0; });
  if (name == "dot" || name == "vdot")
    return any([](const Tensor& tensor) { return tensor.is_conj() || tensor.is_neg(); });
  return false;
}

Kernel FindKernel(const c10::FunctionSchema& schema, Values values) {
  const std::string_view name = BaseName(schema);
  if (name == "pow") return PowerKernel(values);
  if (name == "div" && schema.overload_name().find("mode") != std::string::npos) return nullptr;
  const auto found = Kernels().find(name);
  return found == Kernels().end() || IsSpecial(name, values) ? nullptr : found->second;
}

// Half precision is left to the CPU, and so are tensors elsewhere, except for numbers.
bool IsAccepted(const Tensor& tensor) {
  if (!tensor.defined() || tensor.scalar_type() == at::kComplexHalf || tensor.layout() != at::kStrided)
    return false;
  const bool known = tensor.is_complex() || IsSupported(tensor.scalar_type());
  return known && ((IsOnDevice(tensor) && tensor.dim() < ops::kMaxRank) ||
                   (tensor.device().is_cpu() && tensor.dim() == 0));
}

// Returns the meta tensor that stands for `tensor` in type promotion and in rules for shapes. A number stays
// on the CPU.
Tensor Meta(const Tensor& tensor) {
  if (!IsOnDevice(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

void CheckOverlaps(const Tensor& target, Values inputs) {
  at::assert_no_internal_overlap(target);
  for (const c10::IValue& input : inputs) {
    if (input.isTensor()) at::assert_no_partial_overlap(target, input.toTensor());
  }
}

// The meta kernels of some pointwise operators are Python's, with another text for this error.
void CheckBroadcast(const c10::FunctionSchema& schema, Values values) {
  static constexpr std::array<std::string_view, 7> kPointwise = {"add", "sub", "mul", "div",
                                                                 "eq",  "ne",  "rsub"};
  if (std::ranges::find(kPointwise, BaseName(schema)) == kPointwise.end()) return;
  if (!values[0].isTensor() || !values[1].isTensor()) return;
  const c10::IntArrayRef self = values[0].toTensor().sizes();
  const auto shape = at::infer_size(self, values[1].toTensor().sizes());
  // A target that is also an input keeps its shape.
  const c10::IValue& last = values.back();
  const Tensor* target = last.isTensor() ? &last.toTensor() : nullptr;
  const Variant variant = VariantOf(schema);
  if (variant == Variant::kInPlace) target = &values[0].toTensor();
  const bool read = variant == Variant::kInPlace ||
                    (variant == Variant::kOut &&
                     (target->is_same(values[0].toTensor()) || target->is_same(values[1].toTensor())));
  TORCH_CHECK(!read || target->sizes() == shape, "output with shape ", target->sizes(),
              " doesn't match the broadcast shape ", c10::IntArrayRef(shape));
}

void CheckSameType(const Tensor& self, const Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "Found dtype ", out.scalar_type(), " but expected ",
              self.scalar_type());
}

// Returns a tensor on the device if one of the values is complex and all are accepted, else nullptr.
const Tensor* DeviceTensorOf(Values values) {
  const Tensor* found = nullptr;
  bool is_complex = false;
  for (const c10::IValue& value : values) {
    is_complex |= value.isComplexDouble() || (value.isTensor() && value.toTensor().is_complex());
    if (!value.isTensor()) continue;
    if (!IsAccepted(value.toTensor())) return nullptr;
    if (IsOnDevice(value.toTensor())) found = &value.toTensor();
  }
  return is_complex ? found : nullptr;
}

}  // namespace

bool RunComplex(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  if (schema.returns().size() != 1 || schema.name().compare(0, 6, "aten::") != 0) return false;
  const Values values(stack->data() + (stack->size() - count), count);
  const Kernel kernel = FindKernel(schema, values);
  if (kernel == nullptr) return false;
  const Tensor* like = DeviceTensorOf(values);
  if (like == nullptr) return false;
  CheckBroadcast(schema, values);
  torch::jit::Stack metas;
  for (const c10::IValue& value : values)
    metas.push_back(value.isTensor() ? c10::IValue(Meta(value.toTensor())) : value);
  const c10::Device device = like->device();
  const Variant variant = VariantOf(schema);
  const size_t inputs = variant == Variant::kOut ? count - 1 : count;
  if (variant != Variant::kFunctional) {
    const Tensor& target = values[variant == Variant::kOut ? inputs : 0].toTensor();
    CheckOverlaps(target, values.slice(0, inputs));
  }
  const std::string_view name = BaseName(schema);
  // The CPU stores lengths into an out= of any type, and negated numbers only into one of their own.
  if (name == "abs" && variant == Variant::kOut) return false;
  TORCH_CHECK(name != "abs" || variant != Variant::kInPlace,
              "In-place abs is not supported for complex tensors.");
  if (name == "neg" && variant == Variant::kOut) CheckSameType(values[0].toTensor(), values[1].toTensor());
  if (name == "complex" || name == "polar")
    CheckPair(values, variant == Variant::kOut ? values[inputs].toTensor() : Tensor());
  op.callBoxed(&metas);
  Tensor meta = metas.at(0).toTensor();
  if (name == "angle") meta = meta.contiguous();  // as the CPU's
  if (variant != Variant::kFunctional && !meta.is_complex()) return false;
  const Tensor result = at::empty_strided(meta.sizes(), meta.strides(), meta.options().device(device));
  if (result.numel() > 0) kernel(values.slice(0, inputs), result);
  Tensor target = result;  // a given target may alias an input: it is written when all is read
  if (variant != Variant::kFunctional) {
    target = values[variant == Variant::kOut ? inputs : 0].toTensor();
    if (variant == Variant::kOut && at::native::resize_output(target, result.sizes()))
      target.as_strided_(result.sizes(), result.strides());
    target.copy_(result);
  }
  torch::jit::drop(*stack, count);
  stack->emplace_back(std::move(target));
  return true;
}

}  // namespace xpud::shim
