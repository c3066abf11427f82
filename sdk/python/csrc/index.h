// What stands in the brackets of array[...], where it is integers, slices, ... and None. With the interpreter
// lock.
#pragma once

#include "sdk/python/csrc/python.h"

namespace xpud::python {

// _cut(key): the view; None where the key holds anything else. IndexError: too many indices, or one out of
// range. ValueError: a negative step.
PyObject* CutView(PyObject* array, PyObject* key);

}  // namespace xpud::python
