// Where metrics are served: a TCP socket, or a unix one. Made before the daemon confines itself, which ends
// the making of such sockets. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::telemetry {

struct Endpoint {
  UniqueFd socket;      // listens, does not block
  std::string address;  // "127.0.0.1:9464", as it was bound, or "unix:/run/xpud/metrics.sock"
};

// The path of "unix:PATH"; empty: it is another kind of address.
std::string_view UnixPathOf(std::string_view text);

// `text` is PORT, :PORT, or HOST:PORT with a numeric host ([::1] in brackets) or `localhost`; without a host
// it is 127.0.0.1. Port 0: any free one. Or it is unix:PATH, where nothing may be yet; the socket's mode is
// 0660. InvalidArgument says what is wrong with it.
absl::StatusOr<Endpoint> ListenAt(std::string_view text);

}  // namespace xpud::telemetry
