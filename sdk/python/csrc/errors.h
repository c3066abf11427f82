// Converts a status to a Python exception, and lets Ctrl-C end waits. REQUIRES: the interpreter lock, except
// for CheckInterrupt.
#pragma once

#include "absl/status/status.h"
#include "sdk/python/csrc/python.h"

namespace xpud::python {

// Creates xpud.OutOfMemoryError and xpud.ConnectionError and adds them to the module. Returns false with an
// exception set.
bool AddErrors(PyObject* module);

// Sets the exception that a Python programmer expects and returns nullptr. Out of memory: OutOfMemoryError (a
// MemoryError). InvalidArgument: ValueError. OutOfRange: IndexError. Unimplemented: NotImplementedError.
// Unavailable: ConnectionError. PermissionDenied: PermissionError. Cancelled: the exception of a signal
// handler. Others: RuntimeError.
PyObject* SetError(const absl::Status& status);
// Like SetError, for connecting, where almost all errors are ConnectionError.
PyObject* SetConnectError(const absl::Status& status);

// For ConnectOptions::interrupt: runs signal handlers; returns Cancelled if one raised. Thread-safe; called
// without the interpreter lock.
absl::Status CheckInterrupt();

}  // namespace xpud::python
