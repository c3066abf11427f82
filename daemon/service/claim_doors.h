// The folders and sockets of claims' doors, below the folder of the clients' socket:
//   claims/KEY/xpud.sock  for all who reach it: claims/ can be passed by the daemon's user and root only, so
//                         what is mounted from there into a container is the container's
//   doors/KEY/xpud.sock   for the claim's door_uid
// A folder stays as long as its claim, also while the daemon does not run: a container in which it is mounted
// would keep one that is no longer there. Sockets are replaced. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/service/door.h"
#include "daemon/tenant/claim.h"

namespace xpud::service {

class ClaimDoors {
 public:
  // Makes the folders claims/ and doors/ in `folder`. Where that fails, claims are refused with the reason.
  explicit ClaimDoors(std::string folder);

  // The folders in which a confined daemon makes others.
  std::vector<std::string> Roots() const { return {Of("claims"), Of("doors")}; }
  std::string FolderOf(const std::string& key) const { return Of("claims/" + key); }
  std::string UserFolderOf(const std::string& key) const { return Of("doors/" + key); }

  // Whether the paths of the doors can be addresses. Returns ResourceExhausted with the lengths.
  absl::Status CheckPaths(const std::string& key) const;
  // Makes the doors, or again those that there were.
  absl::StatusOr<std::vector<Door>> Make(const Claim& claim) const;
  // Removes the doors' files and folders. What is not the daemon's own stays.
  void Remove(const std::string& key) const;
  // Removes claims/ and doors/ where they are empty.
  void RemoveRoots() const;

 private:
  std::string Of(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
  absl::Status made_;
};

}  // namespace xpud::service
