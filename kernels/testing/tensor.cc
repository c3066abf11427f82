#include "kernels/testing/tensor.h"

#include <cmath>
#include <limits>

#include "proto/base/check.h"

namespace xpud::kernels {
namespace {

using ops::DType;

constexpr std::byte kFill{0x5A};

float HalfToFloat(uint16_t h) {
  _Float16 value;
  std::memcpy(&value, &h, 2);
  return static_cast<float>(value);
}

uint16_t FloatToHalf(float f) {
  const auto value = static_cast<_Float16>(f);
  uint16_t h;
  std::memcpy(&h, &value, 2);
  return h;
}

uint16_t FloatToBrain(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (std::isnan(f)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename T>
Exact Read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<Exact>(value);
}

template <typename T>
void Write(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

// Integers wrap; reals are truncated first.
int64_t ToInteger(Exact value) {
  if (std::isnan(value) || std::fabs(value) >= 0x1p63L) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(value);
}

Exact ReadElement(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::kBool:
      return *at != std::byte{0} ? 1 : 0;
    case DType::kUInt8:
      return Read<uint8_t>(at);
    case DType::kInt8:
      return Read<int8_t>(at);
    case DType::kInt16:
      return Read<int16_t>(at);
    case DType::kInt32:
      return Read<int32_t>(at);
    case DType::kInt64:
      return Read<int64_t>(at);
    case DType::kFloat32:
      return Read<float>(at);
    case DType::kFloat64:
      return Read<double>(at);
    case DType::kFloat16:
      return HalfToFloat(static_cast<uint16_t>(Read<uint16_t>(at)));
    case DType::kBFloat16: {
      const uint32_t bits = static_cast<uint32_t>(Read<uint16_t>(at)) << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
  }
  return 0;
}

void WriteElement(DType dtype, std::byte* at, Exact value) {
  switch (dtype) {
    case DType::kBool:
      return Write<uint8_t>(at, value != 0);
    case DType::kUInt8:
      return Write(at, static_cast<uint8_t>(ToInteger(value)));
    case DType::kInt8:
      return Write(at, static_cast<int8_t>(ToInteger(value)));
    case DType::kInt16:
      return Write(at, static_cast<int16_t>(ToInteger(value)));
    case DType::kInt32:
      return Write(at, static_cast<int32_t>(ToInteger(value)));
    case DType::kInt64:
      return Write(at, ToInteger(value));
    case DType::kFloat32:
      return Write(at, static_cast<float>(value));
    case DType::kFloat64:
      return Write(at, static_cast<double>(value));
    case DType::kFloat16:
      return Write(at, FloatToHalf(static_cast<float>(value)));
    case DType::kBFloat16:
      return Write(at, FloatToBrain(static_cast<float>(value)));
  }
}

std::vector<int64_t> DenseStrides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= sizes[d];
  }
  return strides;
}

}  // namespace

Exact RoundTo(DType dtype, Exact value) {
  std::byte storage[8];
  WriteElement(dtype, storage, value);
  return ReadElement(dtype, storage);
}

TestTensor::TestTensor(DType dtype, const std::vector<int64_t>& sizes)
    : TestTensor(dtype, sizes, DenseStrides(sizes)) {}

TestTensor::TestTensor(DType dtype, std::vector<int64_t> sizes, std::vector<int64_t> strides)
    : dtype_(dtype), sizes_(std::move(sizes)), strides_(std::move(strides)) {
  int64_t reach = 1;
  for (size_t d = 0; d < sizes_.size(); ++d) reach += (std::max<int64_t>(sizes_[d], 1) - 1) * strides_[d];
  bytes_.assign(static_cast<size_t>(reach) * ops::SizeOf(dtype) + 2 * kMargin, kFill);
  for (int64_t i = 0; i < numel(); ++i) Set(i, 0);
}

Operand TestTensor::operand() const {
  Operand operand;
  operand.data = const_cast<std::byte*>(bytes_.data() + kMargin);
  operand.dtype = dtype_;
  operand.rank = static_cast<uint8_t>(sizes_.size());
  std::copy(sizes_.begin(), sizes_.end(), operand.sizes.begin());
  std::copy(strides_.begin(), strides_.end(), operand.strides.begin());
  return operand;
}

int64_t TestTensor::numel() const {
  int64_t n = 1;
  for (const int64_t s : sizes_) n *= s;
  return n;
}

size_t TestTensor::OffsetOf(int64_t i) const {
  int64_t offset = 0;
  for (size_t d = sizes_.size(); d-- > 0;) {
    offset += i % sizes_[d] * strides_[d];
    i /= sizes_[d];
  }
  return kMargin + static_cast<size_t>(offset) * ops::SizeOf(dtype_);
}

Exact TestTensor::At(int64_t i) const { return ReadElement(dtype_, bytes_.data() + OffsetOf(i)); }

void TestTensor::Set(int64_t i, Exact value) { WriteElement(dtype_, bytes_.data() + OffsetOf(i), value); }

Exact TestTensor::AtIndex(const std::vector<int64_t>& index) const {
  int64_t i = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) i = i * sizes_[d] + (sizes_[d] == 1 ? 0 : index[d]);
  return At(i);
}

bool TestTensor::MarginsIntact() const {
  std::vector<bool> ours(bytes_.size());
  for (int64_t i = 0; i < numel(); ++i) {
    for (size_t b = 0; b < ops::SizeOf(dtype_); ++b) ours[OffsetOf(i) + b] = true;
  }
  for (size_t b = 0; b < bytes_.size(); ++b) {
    if (!ours[b] && bytes_[b] != kFill) return false;
  }
  return true;
}

void Randomise(TestTensor& tensor, std::mt19937_64& random, const RandomRange& range) {
  std::uniform_real_distribution<double> real(range.low, range.high);
  const double inf = std::numeric_limits<double>::infinity();
  const double specials[] = {inf, -inf, std::nan(""), 0, -0.0, 1, -1, 0.5, 1e-30, 87, -100, 3.0e4};
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    Exact value = real(random);
    if (!ops::IsFloating(tensor.dtype())) value = std::floor(value);
    if (tensor.dtype() == DType::kUInt8) value = std::fabs(value);
    if (tensor.dtype() == DType::kBool) value = random() & 1;
    if (range.specials && ops::IsFloating(tensor.dtype()) && random() % 4 == 0)
      value = specials[random() % std::size(specials)];
    tensor.Set(i, value);
  }
}

}  // namespace xpud::kernels
