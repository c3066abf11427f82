// What gRPC and protobuf log: they write a line to stderr for each malformed message of a peer.
#pragma once

namespace xpud::agent {

// From now on these lines go to the agent's log, at most one in a second, with the number of those that were
// left out: no peer can fill the log. REQUIRES: neither library has been used.
void LimitLibraryLogs();

}  // namespace xpud::agent
