// Functions of the module: memory that arrays of several processes share.
#pragma once

#include "sdk/python/csrc/python.h"

namespace xpud::python {

// share(array): returns a ticket for the array's memory, as a tuple of integers.
PyObject* ShareArray(PyObject* module, PyObject* array);
// attach(device, ticket, DType): returns a row-major array of all of the memory. `device`: any of the
// session.
PyObject* AttachArray(PyObject* module, PyObject* args);

}  // namespace xpud::python
