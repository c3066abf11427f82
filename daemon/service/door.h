// A socket at which clients come in, and what it says of those who come by it. A plain struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

struct Door {
  UniqueFd socket;                           // listens
  std::string file;                          // to be removed in the end; empty: the socket was handed to us
  std::optional<uint32_t> gateway_uid = {};  // the user whose gateway may set the tenant of a session
  std::string claim = {};                    // the claim of all who come by it; empty: what users have
  std::optional<uint32_t> only_uid = {};     // refuse all others but this user
};

// Takes `handed` if it is valid, and otherwise makes a socket at `path`.
absl::StatusOr<Door> OpenDoor(const std::string& path, unsigned mode, UniqueFd handed);
// Removes the door's file.
void CloseDoor(const Door& door);

}  // namespace xpud::service
