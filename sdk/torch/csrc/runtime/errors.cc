#include "sdk/torch/csrc/runtime/errors.h"

#include <c10/util/Exception.h>

#include <string>

#include "proto/base/out_of_memory.h"
#include "sdk/torch/csrc/runtime/failed_checks.h"

namespace xpud::shim {
namespace {

PythonHooks& Hooks() {
  static PythonHooks hooks;
  return hooks;
}

}  // namespace

void SetPythonHooks(const PythonHooks& hooks) { Hooks() = hooks; }

absl::Status CheckInterrupt() {
  return Hooks().check_signals != nullptr ? Hooks().check_signals() : absl::OkStatus();
}

std::string ClientName() { return Hooks().client_name != nullptr ? Hooks().client_name() : std::string(); }

WaitScope::WaitScope() : token_(Hooks().release_gil != nullptr ? Hooks().release_gil() : nullptr) {}
WaitScope::~WaitScope() {
  if (token_ != nullptr) Hooks().acquire_gil(token_);
}

void ThrowIndexError(const std::string& message) {
  if (Hooks().throw_index_error != nullptr) Hooks().throw_index_error(message);
  TORCH_CHECK_INDEX(false, message);
}

void Throw(const absl::Status& status) {
  const std::string message(status.message());
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      TORCH_CHECK_WITH(OutOfMemoryError, !IsOutOfMemory(status), message);
      TORCH_CHECK(false, "XPUD error: ", message);  // queues, events with timing, handles
    case absl::StatusCode::kOutOfRange:
      if (const auto check = MessageOfFailedCheck(message); check.has_value()) TORCH_CHECK(false, *check);
      ThrowIndexError(message);
    case absl::StatusCode::kUnimplemented:
      TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    case absl::StatusCode::kUnavailable:
      throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                  static_cast<int32_t>(status.code()), "XPUD error: " + message);
    case absl::StatusCode::kCancelled:
      if (Hooks().rethrow_signal != nullptr) Hooks().rethrow_signal();
      [[fallthrough]];
    default:
      TORCH_CHECK(false, "XPUD error: ", message);
  }
}

}  // namespace xpud::shim
