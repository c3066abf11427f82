// xpud-gateway's command line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::remote {

struct GatewayOptions {
  std::string listen = "127.0.0.1:7070";
  std::string socket;  // the daemon's socket; empty: as clients find it
  std::string token_file;
  std::string tls_cert, tls_key, tls_client_ca;
  std::string metrics_listen;          // as the daemon's --metrics-listen; empty: no metrics
  std::vector<std::string> operators;  // tenants that may use the control plane
  int sessions = 256;
  int hold_seconds = 30;  // how long a session is kept after its connection was lost
  int ready_fd = -1;      // gets the port and a newline when clients can connect
  bool help = false;
  bool version = false;

  bool has_tls() const { return !tls_cert.empty(); }
  // The limit of one tenant, so that it cannot take all sessions; no limit if there are fewer than four.
  int tenant_sessions() const { return sessions < 4 ? sessions : sessions / 4 * 3; }
};

extern const char kGatewayUsage[];

// Returns InvalidArgument with the error and what is allowed; also if the options would let anybody use the
// devices.
absl::StatusOr<GatewayOptions> ParseGatewayOptions(std::span<char* const> arguments);

}  // namespace xpud::remote
