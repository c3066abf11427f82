// Host memory that the daemon shares, and DLPack: how other libraries see bytes without copying them. With
// the interpreter lock.
#pragma once

#include "sdk/python/csrc/python.h"

namespace xpud::python {

// Puts the type HostMemory into the module: HostMemory(device, bytes) has `address` and `nbytes` and lives as
// its session's host memory does (xpud::HostBuffer).
bool AddHostMemory(PyObject* module);

// export_dlpack(owner, address, shape, DType, versioned): a capsule of row-major CPU memory, which keeps
// `owner`.
PyObject* ExportDLPack(PyObject* module, PyObject* args);
// import_dlpack(capsule): (address, shape, strides in elements or None, DType), of CPU memory that lives as
// the capsule does. The capsule stays the caller's.
PyObject* ImportDLPack(PyObject* module, PyObject* capsule);

}  // namespace xpud::python
