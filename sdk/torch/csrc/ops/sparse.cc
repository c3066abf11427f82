// Sparse COO tensors: indices of int64 and values, both dense tensors on the device. ATen's own kernels for
// them are composed of dense operators, so they are registered here; this file adds those that ATen has for
// each device. Other operators run on the CPU. Compressed layouts are refused.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/NativeFunctions.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sdk/torch/csrc/call/command.h"
#include "sdk/torch/csrc/call/kernel.h"
#include "sdk/torch/csrc/fallback/fallback.h"

namespace xpud::shim {
namespace {

using at::Tensor;
using c10::IValue;

void RunOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Calls RunOnHost from an unboxed kernel of ATen operator Op.
template <class Op, class... Args>
decltype(auto) OnHost(Args&&... args) {
  return at::native::call_fallback_fn<&RunOnHost, Op>::call(std::forward<Args>(args)...);
}

// ---- positions ----

// Returns the position of each element, row-major over the sparse dimensions.
Tensor Positions(const Tensor& sparse) {
  const Tensor indices = sparse._indices();
  Tensor positions = indices.select(0, 0);
  for (int64_t d = 1; d < sparse.sparse_dim(); ++d)
    positions = positions.mul(sparse.size(d)).add_(indices.select(0, d));
  return positions;
}

// Returns the indices of such positions.
Tensor IndicesOf(const Tensor& positions, c10::IntArrayRef sizes) {
  std::vector<Tensor> indices(sizes.size());
  Tensor rest = positions;
  for (size_t d = sizes.size(); d-- > 1;) {
    indices[d] = rest.remainder(sizes[d]);
    rest = rest.div(sizes[d], "floor");
  }
  indices[0] = rest;
  return at::stack(indices);
}

// The index of each sparse dimension, for operators that index by tensors.
c10::List<std::optional<Tensor>> IndexOf(const Tensor& sparse) {
  c10::List<std::optional<Tensor>> index;
  for (const Tensor& each : sparse._indices().unbind()) index.push_back(each);
  return index;
}

Tensor MakeSparse(const Tensor& indices, const Tensor& values, c10::IntArrayRef sizes, bool is_coalesced) {
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse),
                                       is_coalesced);
}

// Returns a tensor with the indices of `like` and other values, one for each.
Tensor WithValues(const Tensor& like, const Tensor& values) {
  return MakeSparse(like._indices().clone(), values, like.sizes(), like.is_coalesced());
}

// ---- coalesce ----

// Adds the values of equal indices, in order of their occurrence. Waits for the number of different indices.
Tensor Coalesce(const Tensor& self) {
  if (self.is_coalesced()) return self;
  if (self._nnz() < 2) return MakeSparse(self._indices().clone(), self._values().clone(), self.sizes(), true);
  if (self.sparse_dim() == 0)
    return MakeSparse(self._indices().narrow(1, 0, 1),
                      self._values().sum(0, /*keepdim=*/true, self.scalar_type()), self.sizes(), true);
  const auto [positions, inverse, counts] = at::_unique2(Positions(self), /*sorted=*/true,
                                                         /*return_inverse=*/true, /*return_counts=*/false);
  const bool is_bool = self.scalar_type() == at::kBool;  // true if any is
  const Tensor values = is_bool ? self._values().to(at::kInt) : self._values();
  std::vector<int64_t> sizes = values.sizes().vec();
  sizes[0] = positions.size(0);
  const Tensor sums = at::zeros(sizes, values.options()).index_add_(0, inverse, values);
  const Tensor indices = IndicesOf(positions, self.sizes().slice(0, static_cast<size_t>(self.sparse_dim())));
  return MakeSparse(indices, is_bool ? sums.ne(0) : sums, self.sizes(), true);
}

// ---- sums ----

// Adds alpha * sparse to a dense tensor.
void AddToDense(Tensor& dense, const Tensor& sparse, const at::Scalar& alpha) {
  if (sparse._nnz() == 0) return;
  const Tensor values = sparse._values().to(dense.scalar_type());
  if (sparse.sparse_dim() == 0)
    dense.add_(values.sum(0), alpha);
  else if (sparse.sparse_dim() == 1)
    dense.index_add_(0, sparse._indices().select(0, 0), values, alpha);
  else
    dense.index_put_(IndexOf(sparse), alpha.equal(1) ? values : values.mul(alpha), /*accumulate=*/true);
}

// The elements of both. Coalesced if both are, as on the CPU.
Tensor SumOfSparse(const Tensor& a, const Tensor& b, const at::Scalar& alpha, at::ScalarType type) {
  TORCH_CHECK(a.sizes() == b.sizes(), "add: expected sizes of 'self' and 'other' to match, but ", a.sizes(),
              " != ", b.sizes());
  TORCH_CHECK(a.sparse_dim() == b.sparse_dim(),
              "add: expected 'self' and 'other' to have same number of sparse dimensions");
  const Tensor left = a._values().to(type), right = b._values().to(type).mul(alpha);
  const Tensor sum = MakeSparse(at::cat({a._indices(), b._indices()}, 1), at::cat({left, right}), a.sizes(),
                                /*is_coalesced=*/false);
  return a.is_coalesced() && b.is_coalesced() ? Coalesce(sum) : sum;
}

// Gives `out` the elements of `from`, in its own type.
Tensor& Assign(Tensor& out, const Tensor& from) {
  if (out.is_same(from)) return out;
  TORCH_CHECK(at::canCast(from.scalar_type(), out.scalar_type()), "result type ", from.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  return at::native::copy_sparse_(out, from);
}

Tensor& AddOut(const Tensor& self, const Tensor& other, const at::Scalar& alpha, Tensor& out) {
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  CheckSameDevice(self.device(), other.device());
  const at::ScalarType type = at::promoteTypes(self.scalar_type(), other.scalar_type());
  if (self.is_sparse()) return Assign(out, SumOfSparse(self, other, alpha, type));
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected 'self' and 'other' to have same size, but self has size ", self.sizes(),
              " while other has size ", other.sizes(),
              " (FYI: dense-sparse addition does not currently support broadcasting)");
  TORCH_CHECK(at::canCast(type, out.scalar_type()), "Can't convert result type ", type, " to output ",
              out.scalar_type(), " in add operation");
  if (!out.is_same(self)) {
    out.resize_(self.sizes());
    out.copy_(self);
  }
  AddToDense(out, other, alpha);
  return out;
}

// ---- products ----

// other: a dense number, or a dense tensor of the same size.
Tensor MulOfSparse(const Tensor& self, const Tensor& other, at::ScalarType type) {
  if (other.dim() == 0 && !other.is_sparse()) return WithValues(self, self._values().mul(other).to(type));
  return WithValues(self, self._values().mul(other.index(IndexOf(self))).to(type));
}

Tensor& MulOut(const Tensor& self, const Tensor& other, Tensor& out) {
  if (self.is_sparse() && other.is_sparse()) return OnHost<at::_ops::mul_out>(self, other, out);
  const at::ScalarType type = at::result_type(self, other);
  return Assign(out, self.is_sparse() ? MulOfSparse(self, other, type) : MulOfSparse(other, self, type));
}

// beta self + alpha sparse dense. Each element of `sparse` contributes a row of `dense`.
Tensor Addmm(const Tensor& self, const Tensor& sparse, const Tensor& dense, const at::Scalar& beta,
             const at::Scalar& alpha) {
  if (!sparse.is_sparse() || dense.is_sparse() || self.is_sparse())
    return OnHost<at::_ops::addmm>(self, sparse, dense, beta, alpha);
  TORCH_CHECK(sparse.sparse_dim() == 2, "addmm: matrices expected, got ", sparse.sparse_dim(), "D tensor");
  TORCH_CHECK(sparse.dense_dim() == 0, "addmm: scalar values expected, got ", sparse.dense_dim(), "D values");
  TORCH_CHECK(dense.dim() == 2, "addmm: matrices expected, got ", dense.dim(), "D tensor");
  TORCH_CHECK(sparse.size(1) == dense.size(0), "addmm: Argument #3 (dense): Expected dim 0 size ",
              sparse.size(1), ", got ", dense.size(0));
  const std::array<int64_t, 2> sizes = {sparse.size(0), dense.size(1)};
  // The values of a factor 0 do not count, even if they are not finite.
  Tensor out = beta.equal(0) ? at::zeros(sizes, dense.options()) : self.expand(sizes).mul(beta).contiguous();
  if (sparse._nnz() == 0) return out;
  const Tensor indices = sparse._indices();
  const Tensor rows = dense.index_select(0, indices.select(0, 1)).mul_(sparse._values().unsqueeze(1));
  return out.index_add_(0, indices.select(0, 0), rows, alpha);
}

// ---- parts of dense tensors ----

Tensor SparseMask(const Tensor& self, const Tensor& mask) {
  if (!mask.is_sparse() || self.is_sparse()) return OnHost<at::_ops::sparse_mask>(self, mask);
  TORCH_CHECK(self.sizes() == mask.sizes(), "sparse_mask(): operands have incompatible sizes; self has size ",
              self.sizes(), " but mask has size ", mask.sizes());
  return WithValues(mask, self.index(IndexOf(mask)));
}

// ---- operators that run on the CPU ----

IValue ToDevice(const IValue& value, c10::Device device) {
  if (value.isTensor()) return value.toTensor().defined() ? value.toTensor().to(device) : value;
  if (!value.isTensorList()) return value;
  c10::List<Tensor> moved;
  for (const Tensor& each : value.toTensorVector()) moved.push_back(each.to(device));
  return moved;
}

void CopyBack(const Tensor& from, const Tensor& to) {
  if (to.is_sparse()) {
    Tensor target = to;
    at::native::copy_sparse_(target, from);
  } else {
    to.resize_(from.sizes());
    to.copy_(from);
  }
}

std::optional<c10::Device> DeviceOf(const IValue& value) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().device().type() == kDeviceType)
    return value.toTensor().device();
  if (value.isTensorList()) {
    for (const Tensor& each : value.toTensorVector())
      if (each.device().type() == kDeviceType) return each.device();
  }
  if (value.isDevice() && value.toDevice().type() == kDeviceType) return value.toDevice();
  return std::nullopt;
}

// Runs an operator with copies of its tensors. Tensors that it writes are copied back.
void RunOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const BelowAutocast scope;
  AnnounceFallback(op, *stack);
  const auto& arguments = op.schema().arguments();
  const std::vector<IValue> originals = torch::jit::pop(*stack, arguments.size()), host = [&] {
    std::vector<IValue> copies;
    for (const IValue& each : originals)
      copies.push_back(each.isDevice() ? IValue(c10::Device(at::kCPU)) : ToDevice(each, at::kCPU));
    return copies;
  }();
  c10::Device device(kDeviceType, 0);
  for (const IValue& each : originals)
    if (const auto found = DeviceOf(each)) device = *found;
  torch::jit::Stack results(host.begin(), host.end());
  op.callBoxed(&results);
  for (IValue& result : results) {
    IValue moved = ToDevice(result, device);
    for (size_t i = 0; i < host.size(); ++i) {
      const c10::AliasInfo* alias = arguments[i].alias_info();
      if (alias == nullptr || !alias->isWrite() || !host[i].isTensor()) continue;
      if (result.isTensor() && result.toTensor().is_same(host[i].toTensor())) moved = originals[i];
    }
    result = std::move(moved);
  }
  for (size_t i = 0; i < host.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite() && host[i].isTensor())
      CopyBack(host[i].toTensor(), originals[i].toTensor());
  }
  for (IValue& result : results) stack->push_back(std::move(result));
}

// ---- compressed layouts ----

void RefuseSparse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "xpud has no sparse tensors of compressed layouts (",
                              toString(op.operator_name()),
                              "): use torch.sparse_coo, a dense tensor, or a CPU tensor");
}

// Constructors of compressed tensors. They have composite kernels, which precede a backend's fallback.
constexpr std::array kCompressedMakers = {
    "zeros",
    "sparse_compressed_tensor.comp_plain_value",
    "sparse_compressed_tensor.comp_plain_value_size",
    "_sparse_compressed_tensor_unsafe",
    "_sparse_compressed_tensor_with_dims",
};

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}
TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  for (const char* name : kCompressedMakers)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}

// ATen's composition of smm resizes its result in place, which copies on the host cannot follow.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("smm", torch::CppFunction::makeFromBoxedFunction<&RunOnHost>());
}
// Without it the composition runs as part of autograd. smm has no gradient.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("smm", torch::CppFunction::makeFallthrough()); }

constexpr std::array kToCompressed = {"_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc"};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using ToSparseOfDim = Tensor (*)(const Tensor&, int64_t);
  using ToSparse =
      Tensor (*)(const Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef, std::optional<int64_t>);
  m.impl("_to_sparse", static_cast<ToSparse>(&at::native::dense_to_sparse));
  m.impl("_to_sparse.sparse_dim", static_cast<ToSparseOfDim>(&at::native::dense_to_sparse));
  for (const char* name : kToCompressed)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}

// ATen's kernels, for all devices.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  using ToSparseOfDim = Tensor (*)(const Tensor&, int64_t);
  using ToSparse =
      Tensor (*)(const Tensor&, std::optional<at::Layout>, at::OptionalIntArrayRef, std::optional<int64_t>);
  using Binary = Tensor (*)(const Tensor&, const Tensor&);
  using BinaryInPlace = Tensor& (*)(Tensor&, const Tensor&);
  using BinaryOut = Tensor& (*)(const Tensor&, const Tensor&, Tensor&);
  m.impl("empty.memory_format", TORCH_FN(at::native::empty_sparse_symint));
  m.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  m.impl("_sparse_coo_tensor_with_dims", TORCH_FN(at::native::new_with_dims_sparse));
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         TORCH_FN(at::native::new_with_dims_and_tensor_sparse_symint));
  m.impl("sparse_resize_", TORCH_FN(at::native::sparse_resize_));
  m.impl("sparse_resize_and_clear_", TORCH_FN(at::native::sparse_resize_and_clear_));
  m.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  m.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  m.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  m.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  m.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  m.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  m.impl("_values", TORCH_FN(at::native::_values_sparse));
  m.impl("indices", TORCH_FN(at::native::indices_sparse));
  m.impl("values", TORCH_FN(at::native::values_sparse));
  m.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  m.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  m.impl("clone", TORCH_FN(at::native::clone_sparse));
  m.impl("zero_", TORCH_FN(at::native::zero_sparse_));
  m.impl("_to_dense", TORCH_FN(at::native::sparse_to_dense));
  m.impl("_to_sparse", static_cast<ToSparse>(&at::native::sparse_coo_to_sparse));
  m.impl("_to_sparse.sparse_dim", static_cast<ToSparseOfDim>(&at::native::sparse_coo_to_sparse));
  m.impl("add.Tensor", TORCH_FN(at::native::add_sparse));
  m.impl("add_.Tensor", TORCH_FN(at::native::add_sparse_));
  m.impl("sub.Tensor", TORCH_FN(at::native::sub_sparse));
  m.impl("sub_.Tensor", TORCH_FN(at::native::sub_sparse_));
  m.impl("sub.out", TORCH_FN(at::native::sub_out_sparse));
  m.impl("mul.Tensor", TORCH_FN(at::native::mul_sparse));
  m.impl("mul_.Tensor", TORCH_FN(at::native::mul_sparse_));
  m.impl("div.Tensor", static_cast<Binary>(&at::native::div_sparse));
  m.impl("div_.Tensor", static_cast<BinaryInPlace>(&at::native::div_sparse_));
  m.impl("div.out", static_cast<BinaryOut>(&at::native::div_out_sparse_zerodim));
  m.impl("mv", TORCH_FN(at::native::mv_sparse));
  m.impl("mm", static_cast<Binary>(&at::native::_sparse_mm));
  m.impl("pow.Tensor_Scalar", TORCH_FN(at::native::pow_sparse_scalar));
  m.impl("pow.Tensor_Scalar_out", TORCH_FN(at::native::pow_out_sparse_scalar));
  m.impl("sum", TORCH_FN(at::native::sum_coo));
  m.impl("cat", TORCH_FN(at::native::cat_sparse));
  m.impl("unsqueeze", TORCH_FN(at::native::unsqueeze_sparse));
}

// Ours.
TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  for (const char* name : kToCompressed)
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
  m.impl("_coalesce", XPUD_FN(Coalesce));
  m.impl("add.out", XPUD_FN(AddOut));
  m.impl("mul.out", XPUD_FN(MulOut));
  m.impl("addmm", XPUD_FN(Addmm));
  m.impl("sparse_mask", XPUD_FN(SparseMask));
}

}  // namespace
}  // namespace xpud::shim
