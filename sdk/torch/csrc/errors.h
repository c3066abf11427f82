// Where a status becomes the exception that PyTorch's users expect, and where waits give way to Python. Any
// thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace xpud::shim {

// Out of memory: torch.OutOfMemoryError. OutOfRange: IndexError. Unimplemented: NotImplementedError.
// Unavailable: torch.AcceleratorError. Cancelled: the Python exception that a signal handler raised. All
// else: RuntimeError.
[[noreturn]] void Throw(const absl::Status& status);
inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) [[unlikely]]
    Throw(status);
}

// What the shim needs of Python, set by the binding: the rest of it does not know Python.
struct PythonHooks {
  void* (*release_gil)() = nullptr;  // nullptr result: this thread did not hold it
  void (*acquire_gil)(void* token) = nullptr;
  absl::Status (*check_signals)() = nullptr;  // Cancelled when a handler raised
  void (*rethrow_signal)() = nullptr;         // throws what the handler raised, if it did
  std::string (*client_name)() = nullptr;     // ConnectOptions::client_name
};
void SetPythonHooks(const PythonHooks& hooks);

// ConnectOptions::interrupt.
absl::Status CheckInterrupt();
// ConnectOptions::client_name.
std::string ClientName();

// Around a call that may wait: the interpreter lock is not held meanwhile.
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
