// Keeps claims in files, so that they outlive the daemon: STATE/claims/KEY.claim, each written anew, flushed
// to the disk and renamed into place. So a daemon that is killed leaves the old or the new content. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/tenant/claim.h"

namespace xpud::service {

// CLOCK_BOOTTIME, which counts while the machine sleeps.
uint64_t BootClockNs();
// Another one each time the machine starts.
std::string BootId();

class ClaimStore {
 public:
  struct Kept {
    Claim claim;
    uint64_t expires_ns = 0;  // on the boot clock; 0: never
  };
  struct Found {
    std::vector<Kept> claims;
    std::map<std::string, std::string> unreadable;  // why, by path
  };

  // Makes the folder if it is not there. Returns PermissionDenied if others may write to it.
  static absl::StatusOr<std::unique_ptr<ClaimStore>> Open(const std::string& folder,
                                                          std::string boot = BootId());

  // Reads all files. Those that are not as this program wrote them for a daemon with so many devices stay as
  // they are. What was left of a lifetime counts from now on if the machine has started anew.
  Found Load(size_t devices);
  // Returns FailedPrecondition if the claim's file is one that could not be read.
  absl::Status Save(const Kept& kept);
  absl::Status Remove(const std::string& key);

 private:
  ClaimStore(std::string folder, std::string boot) : folder_(std::move(folder)), boot_(std::move(boot)) {}
  std::string PathOf(const std::string& key) const;
  std::string TextOf(const Kept& kept) const;
  absl::StatusOr<Kept> Parse(std::string_view text, size_t devices) const;
  absl::StatusOr<Kept> Read(const std::string& path, size_t devices) const;
  absl::Status FlushFolder() const;

  const std::string folder_, boot_;
  std::map<std::string, std::string> unreadable_;
};

}  // namespace xpud::service
