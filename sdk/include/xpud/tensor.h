// Tensors and the common ops, for C++ programs. A Tensor is a value: copies view the same memory. Ops run on
// the queue of their first tensor; broadcasting follows NumPy's rules. Whatever is not here is reached
// through Queue::Execute and a row of the op table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "xpud/xpud.h"

namespace xpud {

class Tensor {
 public:
  // Uninitialised, row-major. Errors: InvalidArgument (negative sizes, rank over 8), ResourceExhausted.
  static absl::StatusOr<Tensor> Empty(const Queue& queue, ops::DType dtype, std::vector<int64_t> sizes);
  // Copies `values` (numel(sizes) of them) to the device.
  static absl::StatusOr<Tensor> FromHost(const Queue& queue, std::span<const float> values,
                                         std::vector<int64_t> sizes);
  static absl::StatusOr<Tensor> FromHost(const Queue& queue, std::span<const int64_t> values,
                                         std::vector<int64_t> sizes);

  // Copies out (row-major; only for tensors without gaps) and waits. `target` must hold exactly the tensor's
  // bytes. Raises errors of earlier ops.
  absl::Status ToHost(std::span<std::byte> target) const;
  absl::StatusOr<std::vector<float>> ToFloats() const;  // of a float32 tensor

  // A view with two dimensions swapped.
  Tensor Transpose(int a, int b) const;

  ops::DType dtype() const { return dtype_; }
  const std::vector<int64_t>& sizes() const { return sizes_; }
  int64_t numel() const;
  const Queue& queue() const { return queue_; }
  TensorRef ref() const;  // valid while this object lives

 private:
  Queue queue_;
  std::shared_ptr<Buffer> buffer_;
  uint64_t offset_ = 0;
  ops::DType dtype_ = ops::DType::kFloat32;
  std::vector<int64_t> sizes_, strides_;
};

// Elementwise; both of one dtype. Each is one row of the op table.
absl::StatusOr<Tensor> Add(const Tensor& a, const Tensor& b);
absl::StatusOr<Tensor> Mul(const Tensor& a, const Tensor& b);
absl::StatusOr<Tensor> Mul(const Tensor& a, double b);
// [M,K] x [K,N] -> [M,N], or with one batch dimension in front of both.
absl::StatusOr<Tensor> Matmul(const Tensor& a, const Tensor& b);
// Over one dimension, which keeps size 1.
absl::StatusOr<Tensor> Sum(const Tensor& a, int dim);
absl::StatusOr<Tensor> Softmax(const Tensor& a, int dim);

}  // namespace xpud
