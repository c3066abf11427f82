// Where a status becomes Python's exception, and where waits see Ctrl-C. With the interpreter lock, but for
// CheckInterrupt.
#pragma once

#include "absl/status/status.h"
#include "sdk/python/csrc/python.h"

namespace xpud::python {

// Makes xpud.OutOfMemoryError and xpud.ConnectionError, and puts them into the module. False with an
// exception set.
bool AddErrors(PyObject* module);

// Sets the exception that a Python programmer expects and returns nullptr. Out of memory: OutOfMemoryError (a
// MemoryError). InvalidArgument: ValueError. OutOfRange: IndexError. Unimplemented: NotImplementedError.
// Unavailable: ConnectionError. PermissionDenied: PermissionError. Cancelled: what a signal handler raised.
// All else: RuntimeError.
PyObject* SetError(const absl::Status& status);
// As above, for connecting, where nearly all that fails is the connection.
PyObject* SetConnectError(const absl::Status& status);

// ConnectOptions::interrupt: runs signal handlers; Cancelled when one raised. Any thread, without the lock.
absl::Status CheckInterrupt();

}  // namespace xpud::python
