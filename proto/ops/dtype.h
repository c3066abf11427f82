// The element types of the wire, with ATen's names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xpud::ops {

// Wire numbers, which never change.
enum class DType : uint8_t {
  kBool = 0,
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kBFloat16 = 7,
  kFloat32 = 8,
  kFloat64 = 9,
};
inline constexpr int kNumDTypes = 10;

struct DTypeInfo {
  std::string_view name;  // as in torch
  uint8_t size;           // bytes of an element
  bool floating;
};

inline constexpr std::array<DTypeInfo, kNumDTypes> kDTypeInfo = {{
    {"bool", 1, false},
    {"uint8", 1, false},
    {"int8", 1, false},
    {"int16", 2, false},
    {"int32", 4, false},
    {"int64", 8, false},
    {"float16", 2, true},
    {"bfloat16", 2, true},
    {"float32", 4, true},
    {"float64", 8, true},
}};

constexpr bool IsValid(DType type) { return static_cast<uint8_t>(type) < kNumDTypes; }
constexpr const DTypeInfo& Info(DType type) { return kDTypeInfo[static_cast<size_t>(type)]; }
constexpr size_t SizeOf(DType type) { return Info(type).size; }
constexpr bool IsFloating(DType type) { return Info(type).floating; }

// A set of element types: a bit mask.
using DTypeSet = uint16_t;
constexpr DTypeSet SetOf(DType type) { return static_cast<DTypeSet>(1u << static_cast<unsigned>(type)); }
constexpr bool Contains(DTypeSet set, DType type) { return IsValid(type) && (set & SetOf(type)) != 0; }

inline constexpr DTypeSet kBoolType = SetOf(DType::kBool);
inline constexpr DTypeSet kIntegerTypes = SetOf(DType::kUInt8) | SetOf(DType::kInt8) | SetOf(DType::kInt16) |
                                          SetOf(DType::kInt32) | SetOf(DType::kInt64);
inline constexpr DTypeSet kFloatTypes =
    SetOf(DType::kFloat16) | SetOf(DType::kBFloat16) | SetOf(DType::kFloat32) | SetOf(DType::kFloat64);
inline constexpr DTypeSet kIndexTypes = SetOf(DType::kInt32) | SetOf(DType::kInt64);
inline constexpr DTypeSet kIntegerOrBoolTypes = kIntegerTypes | kBoolType;
inline constexpr DTypeSet kNumericTypes = kIntegerTypes | kFloatTypes;
inline constexpr DTypeSet kAllTypes = kNumericTypes | kBoolType;

}  // namespace xpud::ops
