#include "sdk/python/csrc/types.h"

#include <algorithm>
#include <array>

namespace xpud::python {
namespace {

std::array<PyObject*, ops::kNumDTypes> type_objects{};

}  // namespace

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (KindOf(a) != KindOf(b)) return KindOf(a) > KindOf(b) ? a : b;
  if (KindOf(a) == Kind::kFloat) {
    // Neither 16-bit type contains the other.
    return ops::SizeOf(a) == ops::SizeOf(b) ? DType::kFloat32 : ops::SizeOf(a) > ops::SizeOf(b) ? a : b;
  }
  // uint8 and int8 promote to int16; otherwise the larger type contains the smaller.
  return ops::SizeOf(a) == ops::SizeOf(b) ? DType::kInt16 : ops::SizeOf(a) > ops::SizeOf(b) ? a : b;
}

bool Holds(DType integer, long long value) {
  if (integer == DType::kUInt8) return value >= 0 && value <= 255;
  const unsigned bits = 8 * static_cast<unsigned>(ops::SizeOf(integer)) - 1;
  return bits >= 63 || (value >= -(1LL << bits) && value < (1LL << bits));
}

bool SetTypeObjects(PyObject* tuple) {
  if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != ops::kNumDTypes) {
    PyErr_SetString(PyExc_TypeError, "one object for each element type of the wire");
    return false;
  }
  for (int i = 0; i < ops::kNumDTypes; ++i)
    type_objects[static_cast<size_t>(i)] = NewRef(PyTuple_GetItem(tuple, i));
  return true;
}

PyObject* TypeObject(DType type) { return type_objects[static_cast<size_t>(type)]; }

std::optional<DType> TypeFrom(PyObject* object) {
  const auto* found = std::find(type_objects.begin(), type_objects.end(), object);
  if (found != type_objects.end()) return static_cast<DType>(found - type_objects.begin());
  PyErr_Format(PyExc_TypeError, "expected an xpud.DType, got %R", object);
  return std::nullopt;
}

}  // namespace xpud::python
