// A strided tensor in host memory for tests: values as double, with guards in the gaps between elements.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/api/op_call.h"

namespace xpud::kernels::testing {

inline double ReadElement(const std::byte* at, ops::DType type) {
  if (type == ops::DType::kFloat64) return *reinterpret_cast<const double*>(at);
  if (type == ops::DType::kFloat32) return *reinterpret_cast<const float*>(at);
  if (type == ops::DType::kFloat16) return static_cast<double>(*reinterpret_cast<const _Float16*>(at));
  if (type == ops::DType::kBool) return *reinterpret_cast<const uint8_t*>(at);
  const uint32_t bits = static_cast<uint32_t>(*reinterpret_cast<const uint16_t*>(at)) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline void WriteElement(std::byte* at, ops::DType type, double value) {
  if (type == ops::DType::kFloat64) {
    *reinterpret_cast<double*>(at) = value;
  } else if (type == ops::DType::kFloat32) {
    *reinterpret_cast<float*>(at) = static_cast<float>(value);
  } else if (type == ops::DType::kFloat16) {
    *reinterpret_cast<_Float16*>(at) = static_cast<_Float16>(value);
  } else if (type == ops::DType::kBool) {
    *reinterpret_cast<uint8_t*>(at) = value != 0;
  } else {
    const float narrow = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &narrow, 4);
    *reinterpret_cast<uint16_t*>(at) = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

// Returns the distance from 1 to the next number.
inline double Epsilon(ops::DType type) {
  switch (type) {
    case ops::DType::kFloat64:
      return 2.3e-16;
    case ops::DType::kFloat32:
      return 1.2e-7;
    case ops::DType::kFloat16:
      return 9.8e-4;
    default:
      return 7.9e-3;
  }
}

class HostTensor {
 public:
  HostTensor() { operand_.present = false; }
  HostTensor(ops::DType type, std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    operand_.dtype = type;
    operand_.rank = static_cast<uint8_t>(sizes.size());
    int64_t last = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      operand_.sizes[d] = sizes[d];
      operand_.strides[d] = strides[d];
      last += std::max<int64_t>(0, sizes[d] - 1) * strides[d];
    }
    bytes_.assign((last + 1) * ops::SizeOf(type), std::byte{0x5a});
  }
  // `order` lists the axes from outermost to innermost in memory; `padding` elements are left between rows of
  // the outer ones.
  static HostTensor Laid(ops::DType type, std::vector<int64_t> sizes, std::vector<int> order,
                         int64_t padding) {
    std::vector<int64_t> strides(sizes.size());
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = step;
      step = step * std::max<int64_t>(1, sizes[order[i]]) + padding;
    }
    return HostTensor(type, std::move(sizes), std::move(strides));
  }
  static HostTensor Dense(ops::DType type, std::vector<int64_t> sizes) {
    std::vector<int> order;
    for (size_t d = 0; d < sizes.size(); ++d) order.push_back(static_cast<int>(d));
    return Laid(type, std::move(sizes), std::move(order), 0);
  }

  Operand operand() {
    operand_.data = operand_.present ? bytes_.data() : nullptr;
    return operand_;
  }
  bool present() const { return operand_.present; }
  void set_content(uint64_t content) { operand_.content = content; }
  std::vector<std::byte>& bytes() { return bytes_; }
  const Operand& shape() const { return operand_; }

  template <typename Index>
  double At(const Index& index) const {
    return ReadElement(bytes_.data() + Offset(index), operand_.dtype);
  }
  template <typename Index>
  void Set(const Index& index, double value) {
    WriteElement(bytes_.data() + Offset(index), operand_.dtype, value);
  }
  // Calls visit(index) for each element; index has kMaxRank entries.
  template <typename Visit>
  void ForEach(Visit visit) const {
    std::array<int64_t, ops::kMaxRank> index{};
    if (operand_.numel() == 0) return;
    for (;;) {
      visit(index);
      int d = operand_.rank - 1;
      for (; d >= 0 && ++index[d] == operand_.sizes[d]; --d) index[d] = 0;
      if (d < 0) return;
    }
  }
  template <typename Random>
  void Fill(Random& random) {
    std::normal_distribution<double> normal;
    ForEach([&](const auto& index) {
      Set(index, operand_.dtype == ops::DType::kBool ? random() % 2 : normal(random));
    });
  }

 private:
  template <typename Index>
  int64_t Offset(const Index& index) const {
    int64_t offset = 0;
    for (int d = 0; d < operand_.rank; ++d)
      if (operand_.sizes[d] != 1) offset += index[d] * operand_.strides[d];
    return offset * static_cast<int64_t>(ops::SizeOf(operand_.dtype));
  }

  Operand operand_;
  std::vector<std::byte> bytes_;
};

}  // namespace xpud::kernels::testing
