// Starts threads. std::thread's constructor throws when the system has no thread left, which would end the
// process. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xpud {

// Runs `body` on a new thread with this name (at most 15 characters, for debuggers). Returns
// ResourceExhausted, with the limits that may be reached and how to raise them, if no thread can be started.
absl::StatusOr<std::thread> StartThread(const std::string& name, std::function<void()> body);

// Returns ResourceExhausted, like StartThread, if `count` more threads cannot exist at once. To be called
// before a library starts threads whose failure ends the process. `what`: who needs them, for the message.
absl::Status CheckThreadsLeft(int count, const std::string& what);

}  // namespace xpud
