#include "daemon/service/door.h"

#include <unistd.h>

#include <utility>

#include "daemon/service/socket_file.h"
#include "proto/base/status_macros.h"

namespace xpud::service {

absl::StatusOr<Door> OpenDoor(const std::string& path, unsigned mode, UniqueFd handed) {
  if (handed.valid()) return Door{.socket = std::move(handed), .file = ""};
  ASSIGN_OR_RETURN(UniqueFd socket, ListenAt(path, mode));
  return Door{.socket = std::move(socket), .file = path};
}

void CloseDoor(const Door& door) {
  if (!door.file.empty()) unlink(door.file.c_str());
}

}  // namespace xpud::service
