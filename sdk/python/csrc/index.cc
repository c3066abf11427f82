#include "sdk/python/csrc/index.h"

#include <algorithm>

#include "sdk/python/csrc/array.h"

namespace xpud::python {
namespace {

class Cut {
 public:
  explicit Cut(const ArrayView& of) : of_(of), view_(of) { view_.shape.rank = 0; }

  // Applies one entry of a key. Returns false with the exception set.
  bool Add(PyObject* key) {
    if (key == Py_None) return Put(1, 0);
    const auto dim = static_cast<size_t>(dim_++);
    return PySlice_Check(key) != 0 ? AddSlice(key, of_.shape.sizes[dim], of_.strides[dim])
                                   : AddNumber(key, of_.shape.sizes[dim], of_.strides[dim]);
  }
  // Keeps `count` dimensions unchanged.
  bool AddWhole(int count) {
    for (; count > 0; --count, ++dim_) {
      const auto dim = static_cast<size_t>(dim_);
      if (!Put(of_.shape.sizes[dim], of_.strides[dim])) return false;
    }
    return true;
  }
  ArrayView Take() {
    view_.Measure();
    return std::move(view_);
  }

 private:
  bool Put(int64_t size, int64_t stride) {
    if (view_.shape.rank == ops::kMaxRank) {
      PyErr_Format(PyExc_IndexError, "an array has at most %d dimensions", ops::kMaxRank);
      return false;
    }
    const auto dim = static_cast<size_t>(view_.shape.rank++);
    view_.shape.sizes[dim] = size;
    view_.strides[dim] = stride;
    return true;
  }

  bool AddSlice(PyObject* slice, int64_t size, int64_t stride) {
    Py_ssize_t start = 0, stop = 0, step = 0;
    if (PySlice_Unpack(slice, &start, &stop, &step) != 0) return false;
    if (step < 0) {
      PyErr_SetString(PyExc_ValueError, "views have no negative steps; xpud.flip makes a reversed copy");
      return false;
    }
    const Py_ssize_t count = PySlice_AdjustIndices(static_cast<Py_ssize_t>(size), &start, &stop, step);
    if (count > 0) view_.offset += start * stride;
    return Put(count, count > 1 ? stride * step : stride);
  }

  bool AddNumber(PyObject* number, int64_t size, int64_t stride) {
    const long long at = PyLong_AsLongLong(number);
    if (at == -1 && PyErr_Occurred() != nullptr) return false;
    if (at < -size || at >= size) {
      PyErr_Format(PyExc_IndexError, "index %lld is out of range for dimension %d with size %lld", at,
                   dim_ - 1, static_cast<long long>(size));
      return false;
    }
    view_.offset += (at < 0 ? at + size : at) * stride;
    return true;
  }

  const ArrayView& of_;
  ArrayView view_;
  int dim_ = 0;  // the next dimension of the array
};

enum class Reading { kRead, kOther, kFailed };

// Counts how many dimensions the entries consume, besides `...`, which may occur once.
Reading Count(PyObject* const* keys, Py_ssize_t count, int rank, int& taken) {
  int dots = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* key = keys[i];
    if (key == Py_None) continue;
    if (key == Py_Ellipsis)
      ++dots;
    else if (PyLong_Check(key) || PySlice_Check(key))
      ++taken;
    else
      return Reading::kOther;
  }
  if (taken <= rank && dots <= 1) return Reading::kRead;
  if (dots > 1)
    PyErr_SetString(PyExc_IndexError, "an index can have only one ...");
  else
    PyErr_Format(PyExc_IndexError, "%d indices for %d dimensions", taken, rank);
  return Reading::kFailed;
}

bool AddAll(Cut& cut, PyObject* const* keys, Py_ssize_t count, int rest) {
  bool spread = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const bool dots = keys[i] == Py_Ellipsis;
    if (!(dots ? cut.AddWhole(rest) : cut.Add(keys[i]))) return false;
    spread = spread || dots;
  }
  return spread || cut.AddWhole(rest);
}

constexpr Py_ssize_t kMaxKeys = 2 * ops::kMaxRank + 1;  // a number and a None for each dimension, and `...`

}  // namespace

PyObject* CutView(PyObject* array, PyObject* key) {
  std::array<PyObject*, kMaxKeys> keys{key};
  Py_ssize_t count = 1;
  if (PyTuple_Check(key)) {
    count = PyTuple_Size(key);
    if (count > kMaxKeys) return PyErr_Format(PyExc_IndexError, "%zd indices are too many", count);
    for (Py_ssize_t i = 0; i < count; ++i) keys[static_cast<size_t>(i)] = PyTuple_GetItem(key, i);
  }
  const ArrayView& of = ViewOf(array);
  int taken = 0;
  switch (Count(keys.data(), count, of.shape.rank, taken)) {
    case Reading::kFailed:
      return nullptr;
    case Reading::kOther:
      Py_RETURN_NONE;
    case Reading::kRead:
      break;
  }
  Cut cut(of);
  if (!AddAll(cut, keys.data(), count, of.shape.rank - taken)) return nullptr;
  auto* made = Create<ArrayObject>(Py_TYPE(array));
  if (made != nullptr) made->value = cut.Take();
  return reinterpret_cast<PyObject*>(made);
}

}  // namespace xpud::python
