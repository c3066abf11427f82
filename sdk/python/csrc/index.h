// Keys of array[...] that consist of integers, slices, ... and None. REQUIRES: the interpreter lock.
#pragma once

#include "sdk/python/csrc/python.h"

namespace xpud::python {

// _cut(key): returns the view, or None if the key has other entries. Raises IndexError for too many indices
// or one out of range, and ValueError for a negative step.
PyObject* CutView(PyObject* array, PyObject* key);

}  // namespace xpud::python
