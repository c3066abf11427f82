// Element types in Python, and type promotion: the array API standard's rules within a kind; between kinds
// the floating type wins (int64 with float32 is float32, as in PyTorch). Python's numbers take the arrays'
// type, unless their kind is higher.
#pragma once

#include <optional>

#include "proto/ops/dtype.h"
#include "sdk/python/csrc/python.h"

namespace xpud::python {

using ops::DType;

// Bool, integer, floating.
enum class Kind { kBool, kInteger, kFloat };

inline Kind KindOf(DType type) {
  return type == DType::kBool ? Kind::kBool : ops::IsFloating(type) ? Kind::kFloat : Kind::kInteger;
}
// The type of a Python number if nothing else determines it: int64 or float32.
inline DType DefaultOf(Kind kind) {
  return kind == Kind::kBool ? DType::kBool : kind == Kind::kInteger ? DType::kInt64 : DType::kFloat32;
}
DType Promote(DType a, DType b);
inline DType Promote(DType type, Kind number) { return KindOf(type) >= number ? type : DefaultOf(number); }
// Returns true if every integer in [low, high] is a value of the type.
bool Holds(DType integer, long long value);

// Sets the xpud.DType objects, in wire order. Called once by the package.
bool SetTypeObjects(PyObject* tuple);
PyObject* TypeObject(DType type);  // borrowed
// Returns nullopt with TypeError set if the object is not an xpud.DType.
std::optional<DType> TypeFrom(PyObject* object);

}  // namespace xpud::python
