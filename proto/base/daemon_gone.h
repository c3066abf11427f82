// Errors of a session whose daemon is gone: it died, it ended, or the connection to it was lost. A new
// session may reach the next daemon. A session that the daemon closed for a reason of its own has other
// errors. Thread-safe.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xpud {

// Returns such an error: Unavailable.
absl::Status DaemonGone(absl::string_view message);
// Whether `status` is such an error, in the process that made it.
bool IsDaemonGone(const absl::Status& status);

}  // namespace xpud
