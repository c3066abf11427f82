// The Python module torch_xpud._C: the shim's functions for torch_xpud/__init__.py, and the Python calls that
// the shim needs.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "sdk/torch/csrc/allocator.h"
#include "sdk/torch/csrc/errors.h"
#include "sdk/torch/csrc/fallback.h"
#include "sdk/torch/csrc/generator.h"
#include "sdk/torch/csrc/registration.h"
#include "sdk/torch/csrc/runtime.h"

namespace xpud::shim {
namespace {

namespace py = pybind11;

// The exception that a signal handler raised while a call waited.
std::unique_ptr<python_error>& PendingSignal() {
  thread_local std::unique_ptr<python_error> pending;
  return pending;
}

bool IsPythonUp() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

void* ReleaseGil() { return IsPythonUp() && PyGILState_Check() ? PyEval_SaveThread() : nullptr; }
void AcquireGil(void* token) { PyEval_RestoreThread(static_cast<PyThreadState*>(token)); }

absl::Status CheckSignals() {
  if (!IsPythonUp()) return absl::OkStatus();
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return absl::OkStatus();
  PendingSignal() = std::make_unique<python_error>();
  PendingSignal()->persist();
  return absl::CancelledError("interrupted by a signal");
}

void RethrowSignal() {
  if (PendingSignal() == nullptr) return;
  const std::unique_ptr<python_error> pending = std::move(PendingSignal());
  throw python_error(std::move(*pending));
}

// torch_xpud.client_name.client_name. Never destroyed, because the interpreter may end first.
py::object& ClientNameFunction() {
  static auto* function = new py::object;
  return *function;
}

std::string AskClientName() {
  if (!IsPythonUp()) return "";
  py::gil_scoped_acquire gil;
  if (!ClientNameFunction()) return "";
  try {
    return py::cast<std::string>(ClientNameFunction()());
  } catch (const py::error_already_set&) {
    return "";  // connect without a name
  }
}

py::dict DeviceProperties(int index) {
  const DeviceInfo& info = Runtime::Get().device(index);
  py::dict properties;
  properties["name"] = info.name;
  properties["kind"] = info.kind;
  properties["vendor"] = info.vendor;
  properties["total_memory"] = info.total_memory;
  properties["compute_units"] = info.compute_units;
  return properties;
}

std::string Address() {
  Session* session = Runtime::Get().session();
  return session == nullptr ? std::string() : session->address();
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  SetPythonHooks({.release_gil = ReleaseGil,
                  .acquire_gil = AcquireGil,
                  .check_signals = CheckSignals,
                  .rethrow_signal = RethrowSignal,
                  .client_name = AskClientName});
  RegisterOpTable();
  m.def("is_connected", &Runtime::IsConnected);
  m.def("is_in_bad_fork", &Runtime::IsInBadFork);
  m.def("connect", torch::wrap_pybind_function_no_gil([] { Runtime::Get(); }));
  m.def("device_properties", torch::wrap_pybind_function(DeviceProperties));
  m.def("set_client_name_function", [](py::object function) { ClientNameFunction() = std::move(function); });
  m.def("fallback_counts", &FallbackCounts);
  m.def("address", torch::wrap_pybind_function(Address));
  m.def("default_generator", torch::wrap_pybind_function([](int index) {
          return DefaultGenerator(static_cast<c10::DeviceIndex>(index));
        }));
  m.def("manual_seed_all", torch::wrap_pybind_function([](uint64_t seed) {
          for (int i = 0; i < kMaxDevices; ++i) {
            at::Generator generator = DefaultGenerator(static_cast<c10::DeviceIndex>(i));
            std::lock_guard<std::mutex> lock(generator.mutex());
            generator.set_current_seed(seed);
          }
        }));
}

}  // namespace xpud::shim
