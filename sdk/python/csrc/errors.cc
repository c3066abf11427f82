#include "sdk/python/csrc/errors.h"

#include <string>

#include "proto/base/out_of_memory.h"

namespace xpud::python {
namespace {

PyObject* out_of_memory_error = nullptr;
PyObject* connection_error = nullptr;

// The exception that a signal handler raised while this thread waited.
struct Pending {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
};
thread_local Pending pending;

PyObject* TypeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      return IsOutOfMemory(status) ? out_of_memory_error : PyExc_RuntimeError;
    case absl::StatusCode::kInvalidArgument:
      return PyExc_ValueError;
    case absl::StatusCode::kOutOfRange:
      return PyExc_IndexError;
    case absl::StatusCode::kUnimplemented:
      return PyExc_NotImplementedError;
    case absl::StatusCode::kUnavailable:
      return connection_error;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return PyExc_PermissionError;
    default:
      return PyExc_RuntimeError;
  }
}

PyObject* Raise(PyObject* type, const absl::Status& status) {
  PyErr_SetString(type, std::string(status.message()).c_str());
  return nullptr;
}

// Returns true if the status stands for a signal handler's exception; sets that exception again.
bool RestorePending(const absl::Status& status) {
  if (!absl::IsCancelled(status) || pending.type == nullptr) return false;
  const Pending raised = std::exchange(pending, {});
  PyErr_Restore(raised.type, raised.value, raised.traceback);
  return true;
}

bool AddError(PyObject* module, const char* name, const char* text, PyObject* base, PyObject*& error) {
  error = PyErr_NewExceptionWithDoc((std::string("xpud.") + name).c_str(), text, base, nullptr);
  return error != nullptr && PyObject_SetAttrString(module, name, error) == 0;
}

}  // namespace

bool AddErrors(PyObject* module) {
  return AddError(module, "OutOfMemoryError", "The device, or this session's share of it, is out of memory.",
                  PyExc_MemoryError, out_of_memory_error) &&
         AddError(module, "ConnectionError", "No daemon answers, or it refused this client, or it is gone.",
                  PyExc_ConnectionError, connection_error);
}

PyObject* SetError(const absl::Status& status) {
  return RestorePending(status) ? nullptr : Raise(TypeOf(status), status);
}

PyObject* SetConnectError(const absl::Status& status) {
  if (RestorePending(status)) return nullptr;
  PyObject* type = TypeOf(status);
  return Raise(type == PyExc_ValueError || type == PyExc_PermissionError ? type : connection_error, status);
}

absl::Status CheckInterrupt() {
  if (Py_IsInitialized() == 0) return absl::OkStatus();
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  if (raised) PyErr_Fetch(&pending.type, &pending.value, &pending.traceback);
  PyGILState_Release(state);
  return raised ? absl::CancelledError("interrupted by a signal") : absl::OkStatus();
}

}  // namespace xpud::python
