// Tensors and the common ops, for C++ programs. A Tensor is a value: copies view the same memory. Ops run on
// the queue of their first tensor. Broadcasting follows NumPy's rules. Run all other ops through
// Queue::Execute with a row of the op table. Thread-compatible.
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
  // Returns an uninitialised, row-major tensor. Errors: InvalidArgument (negative sizes, rank over 8),
  // ResourceExhausted.
  static absl::StatusOr<Tensor> Empty(const Queue& queue, ops::DType dtype, std::vector<int64_t> sizes);
  // Copies `values` to the device. REQUIRES: values.size() is the product of `sizes`.
  static absl::StatusOr<Tensor> FromHost(const Queue& queue, std::span<const float> values,
                                         std::vector<int64_t> sizes);
  static absl::StatusOr<Tensor> FromHost(const Queue& queue, std::span<const int64_t> values,
                                         std::vector<int64_t> sizes);

  // Copies the elements to host memory, row-major, and waits. `target` must have exactly the tensor's size in
  // bytes. Only for tensors without gaps. Returns errors of earlier ops.
  absl::Status ToHost(std::span<std::byte> target) const;
  absl::StatusOr<std::vector<float>> ToFloats() const;  // REQUIRES: float32

  // Returns a view with dimensions `a` and `b` swapped.
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

// Elementwise ops on tensors of one dtype. Each is one row of the op table.
absl::StatusOr<Tensor> Add(const Tensor& a, const Tensor& b);
absl::StatusOr<Tensor> Mul(const Tensor& a, const Tensor& b);
absl::StatusOr<Tensor> Mul(const Tensor& a, double b);
// Returns [M,N] for [M,K] and [K,N]. Both may have one batch dimension in front.
absl::StatusOr<Tensor> Matmul(const Tensor& a, const Tensor& b);
// Over dimension `dim`, which stays with size 1 in the sum.
absl::StatusOr<Tensor> Sum(const Tensor& a, int dim);
absl::StatusOr<Tensor> Softmax(const Tensor& a, int dim);

}  // namespace xpud
