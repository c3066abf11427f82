// xpud._xpud.Array: a strided view of device memory, the base of xpud.Array. Views share their memory.
// REQUIRES: the interpreter lock.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "sdk/python/csrc/python.h"
#include "sdk/python/csrc/session.h"
#include "sdk/python/csrc/types.h"

namespace xpud::python {

struct Shape {
  int rank = 0;
  std::array<int64_t, ops::kMaxRank> sizes{};

  std::span<const int64_t> span() const { return {sizes.data(), static_cast<size_t>(rank)}; }
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t size : span()) n *= size;
    return n;
  }
  bool operator==(const Shape& other) const {
    return rank == other.rank && std::equal(sizes.begin(), sizes.begin() + rank, other.sizes.begin());
  }
};

struct ArrayView {
  std::shared_ptr<Storage> storage;
  DType dtype = DType::kFloat32;
  Shape shape;
  int64_t offset = 0;                            // in elements, from the storage's start
  std::array<int64_t, ops::kMaxRank> strides{};  // in elements, >= 0
  int64_t count = 0;                             // of elements
  bool dense = false;                            // row-major without gaps

  uint64_t bytes() const { return static_cast<uint64_t>(count) * ops::SizeOf(dtype); }
  TensorRef Ref() const { return RefAs(shape, strides); }
  // The same elements as one dimension. REQUIRES: a dense view.
  TensorRef FlatRef() const;
  // A reference with other sizes and strides, which the caller keeps alive.
  TensorRef RefAs(const Shape& as, const std::array<int64_t, ops::kMaxRank>& with) const;
  // Sets shape and strides to row-major ones.
  void SetDense(const Shape& to);
  // Sets count and dense from shape and strides.
  void Measure();
};

struct ArrayObject {
  PyObject_HEAD ArrayView value;
};

extern PyTypeObject* array_base;  // _xpud.Array
extern PyTypeObject* array_type;  // xpud.Array: the type of new arrays

// Creates the base type, with the operators, and adds it to the module.
bool AddArrayType(PyObject* module);

inline bool IsArray(PyObject* object) { return PyObject_TypeCheck(object, array_base) != 0; }
inline ArrayView& ViewOf(PyObject* array) { return reinterpret_cast<ArrayObject*>(array)->value; }
// Returns nullptr and sets TypeError if the object is not an array.
const ArrayView* CheckArray(PyObject* object);

// Returns an uninitialised, dense array.
PyObject* NewArray(const std::shared_ptr<SessionState>& session, uint32_t device, DType dtype,
                   const Shape& shape);
PyObject* NewArrayLike(const ArrayView& like, DType dtype, const Shape& shape);

// Reads sizes from a tuple of integers. Returns false with the exception set.
bool ShapeFrom(PyObject* tuple, Shape& shape);
PyObject* TupleOf(std::span<const int64_t> values, int64_t scale = 1);

// Returns true if writing to `out` while `in` is read could change the result: they share memory, but are not
// the same elements in the same order.
bool Overlap(const ArrayView& out, const ArrayView& in);

}  // namespace xpud::python
