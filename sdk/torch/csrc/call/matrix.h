// A matrix in device memory: a tensor of rank 2, or some of its rows and columns; or a number. Refers to
// memory that a tensor owns. A plain value, and cheap: operators that send a command for each step of a
// sequence describe parts of tensors with it, because a view of a tensor takes PyTorch a microsecond.
#pragma once

#include <array>
#include <initializer_list>

#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

class Matrix {
 public:
  Matrix() = default;  // absent
  explicit Matrix(double number) : ref_(TensorRef::Immediate(number)) {}
  explicit Matrix(const at::TensorBase& tensor)
      : ref_(Describe(tensor)),
        sizes_{tensor.size(0), tensor.size(1)},
        strides_{tensor.stride(0), tensor.stride(1)} {}

  Matrix Rows(int64_t begin, int64_t count) const { return Part(0, begin, count); }
  Matrix Columns(int64_t begin, int64_t count) const { return Part(1, begin, count); }
  Matrix Transposed() const {
    Matrix matrix = *this;
    std::swap(matrix.sizes_[0], matrix.sizes_[1]);
    std::swap(matrix.strides_[0], matrix.strides_[1]);
    return matrix;
  }
  bool IsPresent() const { return ref_.kind != TensorRef::Kind::kAbsent; }
  int64_t rows() const { return sizes_[0]; }
  int64_t columns() const { return sizes_[1]; }
  ops::DType dtype() const { return ref_.dtype; }
  // Valid while this matrix exists.
  TensorRef Ref() const {
    TensorRef ref = ref_;
    ref.sizes = sizes_.data();
    ref.strides = strides_.data();
    return ref;
  }

 private:
  Matrix Part(size_t dim, int64_t begin, int64_t count) const {
    Matrix part = *this;
    part.ref_.offset += static_cast<uint64_t>(begin * strides_[dim]) * ops::SizeOf(ref_.dtype);
    part.sizes_[dim] = count;
    return part;
  }

  TensorRef ref_;
  std::array<int64_t, 2> sizes_{}, strides_{};
};

// Computes a row of family kMap on matrices of one size, and numbers. Nothing is broadcast or promoted.
void LaunchMap(const ops::Row& row, std::initializer_list<Matrix> outputs,
               std::initializer_list<Matrix> inputs, int device);

}  // namespace xpud::shim
