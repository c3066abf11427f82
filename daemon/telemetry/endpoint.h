// The socket that metrics are served on, TCP or unix. Created before the daemon confines itself and loses the
// right to create sockets. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::telemetry {

struct Endpoint {
  UniqueFd socket;      // listening, non-blocking
  std::string address;  // the bound address: "127.0.0.1:9464" or "unix:/run/xpud/metrics.sock"
};

// Returns the path of "unix:PATH", or "" for other addresses.
std::string_view UnixPathOf(std::string_view text);

// Returns InvalidArgument, as ListenAt does, if `text` is no address for metrics.
absl::Status CheckAddress(std::string_view text);

// `text` is PORT, :PORT, or HOST:PORT with a numeric host ([::1] in brackets) or `localhost`; the default
// host is 127.0.0.1. Port 0 means any free port. Or it is unix:PATH; the path must not exist, and the socket
// gets mode 0660. Returns InvalidArgument with the reason.
absl::StatusOr<Endpoint> ListenAt(std::string_view text);

}  // namespace xpud::telemetry
