// Where metrics are served: a TCP socket. Made before the daemon confines itself, which ends the making of
// such sockets. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::telemetry {

struct Endpoint {
  UniqueFd socket;      // listens, does not block
  std::string address;  // "127.0.0.1:9464", as it was bound
};

// `text` is PORT, :PORT, or HOST:PORT with a numeric host ([::1] in brackets) or `localhost`; without a host
// it is 127.0.0.1. Port 0: any free one. InvalidArgument says what is wrong with it.
absl::StatusOr<Endpoint> ListenAt(std::string_view text);

}  // namespace xpud::telemetry
