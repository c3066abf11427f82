// Host memory that the daemon shares, and DLPack, through which other libraries read bytes without a copy.
// REQUIRES: the interpreter lock.
#pragma once

#include "sdk/python/csrc/python.h"

namespace xpud::python {

// Adds the type HostMemory to the module: HostMemory(device, bytes) has `address` and `nbytes`, and the
// lifetime of its session's host memory (xpud::HostBuffer).
bool AddHostMemory(PyObject* module);

// export_dlpack(owner, address, shape, DType, versioned): returns a capsule of row-major CPU memory, which
// keeps `owner` alive.
PyObject* ExportDLPack(PyObject* module, PyObject* args);
// import_dlpack(capsule): returns (address, shape, strides in elements or None, DType) of CPU memory that
// lives as long as the capsule. The caller keeps the capsule.
PyObject* ImportDLPack(PyObject* module, PyObject* capsule);

}  // namespace xpud::python
