#include "xpud/tensor.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/matmul.h"
#include "proto/ops/families/softmax.h"

namespace xpud {
namespace {

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

absl::Status CheckSizes(const std::vector<int64_t>& sizes) {
  if (sizes.size() > ops::kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", sizes.size(), "; at most ", ops::kMaxRank, " is allowed"));
  }
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; })) {
    return absl::InvalidArgumentError(
        absl::StrCat("sizes [", absl::StrJoin(sizes, ", "), "] must not be negative"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> BroadcastSizes(const std::vector<int64_t>& a,
                                                    const std::vector<int64_t>& b) {
  const size_t rank = std::max(a.size(), b.size());
  std::vector<int64_t> sizes(rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t x = d + a.size() < rank ? 1 : a[d + a.size() - rank];
    const int64_t y = d + b.size() < rank ? 1 : b[d + b.size() - rank];
    if (x != y && x != 1 && y != 1) {
      return absl::InvalidArgumentError(absl::StrCat("sizes [", absl::StrJoin(a, ", "), "] and [",
                                                     absl::StrJoin(b, ", "),
                                                     "] do not broadcast at dimension ", d));
    }
    sizes[d] = x == 1 ? y : x;
  }
  return sizes;
}

// `ref` seen with `rank` dimensions: ones are put in front.
struct Expanded {
  Expanded(TensorRef source, size_t rank) : ref(source) {
    const size_t lead = rank - source.rank;
    for (size_t d = 0; d < rank; ++d) {
      sizes[d] = d < lead ? 1 : source.sizes[d - lead];
      strides[d] = d < lead ? 0 : source.strides[d - lead];
    }
    ref.rank = static_cast<uint8_t>(rank);
    ref.sizes = sizes.data();
    ref.strides = strides.data();
  }
  TensorRef ref;
  std::array<int64_t, ops::kMaxRank> sizes{}, strides{};
};

absl::StatusOr<Tensor> Run(const ops::Row& row, const Tensor& like, std::vector<int64_t> sizes,
                           std::span<const TensorRef> inputs) {
  ASSIGN_OR_RETURN(Tensor out, Tensor::Empty(like.queue(), like.dtype(), std::move(sizes)));
  const TensorRef output = out.ref();
  RETURN_IF_ERROR(like.queue().Execute({&row, like.dtype(), {&output, 1}, inputs, {}}));
  return out;
}

template <template <typename> class Named>
absl::Status Execute(const ops::Row& row, const Named<TensorRef>& call, const Tensor& like) {
  return like.queue().Execute(ops::NamedOpCall<Named>(call).Of(row, like.dtype()));
}

absl::StatusOr<Tensor> Binary(const ops::Row& row, const Tensor& a, const Tensor& b,
                              std::span<const TensorRef> rest = {}) {
  if (a.dtype() != b.dtype()) {
    return absl::InvalidArgumentError(absl::StrCat("dtypes ", std::string(ops::Info(a.dtype()).name), " and ",
                                                   std::string(ops::Info(b.dtype()).name), " differ"));
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> sizes, BroadcastSizes(a.sizes(), b.sizes()));
  const Expanded wide_a(a.ref(), sizes.size()), wide_b(b.ref(), sizes.size());
  std::vector<TensorRef> inputs = {wide_a.ref, wide_b.ref};
  inputs.insert(inputs.end(), rest.begin(), rest.end());
  return Run(row, a, std::move(sizes), inputs);
}

absl::Status CheckDim(const Tensor& a, int dim) {
  if (dim >= 0 && dim < static_cast<int>(a.sizes().size())) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("dimension ", dim, " of a tensor of rank ", a.sizes().size()));
}

template <typename T>
absl::StatusOr<Tensor> Upload(const Queue& queue, std::span<const T> values, ops::DType dtype,
                              std::vector<int64_t> sizes) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Empty(queue, dtype, std::move(sizes)));
  if (tensor.numel() != static_cast<int64_t>(values.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(values.size(), " values for sizes [", absl::StrJoin(tensor.sizes(), ", "), "]"));
  }
  RETURN_IF_ERROR(queue.Upload(std::as_bytes(values), tensor.ref().buffer, 0));
  return tensor;
}

}  // namespace

absl::StatusOr<Tensor> Tensor::Empty(const Queue& queue, ops::DType dtype, std::vector<int64_t> sizes) {
  RETURN_IF_ERROR(CheckSizes(sizes));
  Tensor tensor;
  tensor.queue_ = queue;
  tensor.dtype_ = dtype;
  tensor.strides_ = RowMajorStrides(sizes);
  tensor.sizes_ = std::move(sizes);
  ASSIGN_OR_RETURN(Buffer buffer, queue.Allocate(static_cast<uint64_t>(tensor.numel()) * ops::SizeOf(dtype)));
  tensor.buffer_ = std::make_shared<Buffer>(std::move(buffer));
  return tensor;
}

absl::StatusOr<Tensor> Tensor::FromHost(const Queue& queue, std::span<const float> values,
                                        std::vector<int64_t> sizes) {
  return xpud::Upload(queue, values, ops::DType::kFloat32, std::move(sizes));
}

absl::StatusOr<Tensor> Tensor::FromHost(const Queue& queue, std::span<const int64_t> values,
                                        std::vector<int64_t> sizes) {
  return xpud::Upload(queue, values, ops::DType::kInt64, std::move(sizes));
}

absl::Status Tensor::ToHost(std::span<std::byte> target) const {
  const size_t bytes = static_cast<size_t>(numel()) * ops::SizeOf(dtype_);
  if (target.size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a target of ", target.size(), " bytes for a tensor of ", bytes));
  }
  if (strides_ != RowMajorStrides(sizes_))
    return absl::InvalidArgumentError("only a row-major tensor can be copied out");
  return queue_.Download(buffer_->handle(), offset_, target);
}

absl::StatusOr<std::vector<float>> Tensor::ToFloats() const {
  if (dtype_ != ops::DType::kFloat32) return absl::InvalidArgumentError("ToFloats needs a float32 tensor");
  std::vector<float> values(static_cast<size_t>(numel()));
  RETURN_IF_ERROR(ToHost(std::as_writable_bytes(std::span(values))));
  return values;
}

Tensor Tensor::Transpose(int a, int b) const {
  Tensor view = *this;
  std::swap(view.sizes_.at(static_cast<size_t>(a)), view.sizes_.at(static_cast<size_t>(b)));
  std::swap(view.strides_.at(static_cast<size_t>(a)), view.strides_.at(static_cast<size_t>(b)));
  return view;
}

int64_t Tensor::numel() const {
  int64_t n = 1;
  for (const int64_t size : sizes_) n *= size;
  return n;
}

TensorRef Tensor::ref() const {
  TensorRef ref;
  ref.kind = TensorRef::Kind::kTensor;
  ref.dtype = dtype_;
  ref.rank = static_cast<uint8_t>(sizes_.size());
  ref.buffer = buffer_->handle();
  ref.offset = offset_;
  ref.sizes = sizes_.data();
  ref.strides = strides_.data();
  return ref;
}

absl::StatusOr<Tensor> Add(const Tensor& a, const Tensor& b) {
  static const ops::Row& row = ops::RowOf("add.Tensor");
  const TensorRef alpha = TensorRef::Immediate(int64_t{1});
  return Binary(row, a, b, {&alpha, 1});
}

absl::StatusOr<Tensor> Mul(const Tensor& a, const Tensor& b) {
  static const ops::Row& row = ops::RowOf("mul.Tensor");
  return Binary(row, a, b);
}

absl::StatusOr<Tensor> Mul(const Tensor& a, double b) {
  static const ops::Row& row = ops::RowOf("mul.Tensor");
  const TensorRef inputs[] = {a.ref(), TensorRef::Immediate(b)};
  return Run(row, a, a.sizes(), inputs);
}

absl::StatusOr<Tensor> Matmul(const Tensor& a, const Tensor& b) {
  static const ops::Row& row = ops::RowOf("mm");
  const size_t rank = a.sizes().size();
  if (rank != b.sizes().size() || (rank != 2 && rank != 3) || a.sizes().back() != b.sizes()[rank - 2] ||
      (rank == 3 && a.sizes()[0] != b.sizes()[0])) {
    return absl::InvalidArgumentError(absl::StrCat("sizes [", absl::StrJoin(a.sizes(), ", "), "] and [",
                                                   absl::StrJoin(b.sizes(), ", "),
                                                   "] do not multiply as matrices"));
  }
  std::vector<int64_t> sizes = a.sizes();
  sizes.back() = b.sizes().back();
  ASSIGN_OR_RETURN(Tensor out, Tensor::Empty(a.queue(), a.dtype(), std::move(sizes)));
  RETURN_IF_ERROR(
      Execute(row, ops::MatmulCall<TensorRef>{.out = out.ref(), .a = a.ref(), .b = b.ref(), .beta = 0}, a));
  return out;
}

absl::StatusOr<Tensor> Sum(const Tensor& a, int dim) {
  static const ops::Row& row = ops::RowOf("sum");
  RETURN_IF_ERROR(CheckDim(a, dim));
  std::vector<int64_t> sizes = a.sizes();
  sizes[static_cast<size_t>(dim)] = 1;
  const TensorRef inputs[] = {a.ref()};
  return Run(row, a, std::move(sizes), inputs);
}

absl::StatusOr<Tensor> Softmax(const Tensor& a, int dim) {
  static const ops::Row& row = ops::RowOf("_softmax");
  RETURN_IF_ERROR(CheckDim(a, dim));
  ASSIGN_OR_RETURN(Tensor out, Tensor::Empty(a.queue(), a.dtype(), a.sizes()));
  RETURN_IF_ERROR(
      Execute(row, ops::SoftmaxCall<TensorRef>{.out = out.ref(), .self = a.ref(), .dim = dim}, a));
  return out;
}

}  // namespace xpud
