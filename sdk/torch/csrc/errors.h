// Converts a status to the exception that PyTorch's users expect, and releases the interpreter lock while a
// call waits. Thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace xpud::shim {

// Out of memory: torch.OutOfMemoryError. OutOfRange: IndexError. Unimplemented: NotImplementedError.
// Unavailable: torch.AcceleratorError. Cancelled: the Python exception that a signal handler raised. Any
// other status: RuntimeError.
[[noreturn]] void Throw(const absl::Status& status);
inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) [[unlikely]]
    Throw(status);
}

// Calls into Python that the shim needs. The binding sets them, so the other files do not depend on Python.
struct PythonHooks {
  void* (*release_gil)() = nullptr;  // returns nullptr if this thread did not hold it
  void (*acquire_gil)(void* token) = nullptr;
  absl::Status (*check_signals)() = nullptr;  // Cancelled if a handler raised
  void (*rethrow_signal)() = nullptr;         // throws the handler's exception, if there is one
  std::string (*client_name)() = nullptr;     // ConnectOptions::client_name
};
void SetPythonHooks(const PythonHooks& hooks);

// The function for ConnectOptions::interrupt.
absl::Status CheckInterrupt();
// The value for ConnectOptions::client_name.
std::string ClientName();

// Releases the interpreter lock while a call may wait.
class WaitScope {
 public:
  WaitScope();
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  void* token_;
};

}  // namespace xpud::shim
