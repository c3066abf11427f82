// Converts a status to the exception that PyTorch's users expect, and releases the interpreter lock while a
// call waits. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace xpud::shim {

// Out of memory: torch.OutOfMemoryError. OutOfRange: torch.xpud.InvalidIndexError. Unimplemented:
// NotImplementedError. Unavailable: torch.AcceleratorError. Cancelled: the Python exception that a signal
// handler raised. Any other status: RuntimeError.
[[noreturn]] void Throw(const absl::Status& status);
inline void ThrowIfError(const absl::Status& status) {
  if (!status.ok()) [[unlikely]]
    Throw(status);
}

// Throws the error of an index out of range: on other devices it is an IndexError of some operators and a
// RuntimeError of others. The daemon does not know for which operator an index was used, so torch.xpud's
// exception is both.
[[noreturn]] void ThrowIndexError(const std::string& message);
// Throws it if a dimension of `size` elements, in which something is indexed, is empty.
inline void ThrowUnlessIndexable(int64_t size, int64_t dim) {
  if (size == 0) [[unlikely]]
    ThrowIndexError("index out of range: dimension " + std::to_string(dim) + " has size 0");
}

// Calls into Python that the shim needs. The binding sets them, so the other files do not depend on Python.
struct PythonHooks {
  void* (*release_gil)() = nullptr;  // returns nullptr if this thread did not hold it
  void (*acquire_gil)(void* token) = nullptr;
  absl::Status (*check_signals)() = nullptr;  // Cancelled if a handler raised
  void (*rethrow_signal)() = nullptr;         // throws the handler's exception, if there is one
  void (*throw_index_error)(const std::string& message) = nullptr;
  std::string (*client_name)() = nullptr;  // ConnectOptions::client_name
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
