// The files by which container runtimes mount a claim's folder into its pods (CDI, container device
// interface). The agent keeps no other record of them: each file says which claim it is for. Thread-safe; the
// caller ensures that no two threads change the file of one claim at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xpud::agent::kubernetes {

// What a file is for. Only IsUid uids and IsObjectName names are written.
struct CdiClaim {
  std::string uid, name_space, name;
  std::vector<std::string> pods;  // their uids
  std::string door;               // the folder on the host, an absolute path

  bool operator==(const CdiClaim&) const = default;
};

// The text of a file. The device's name is the claim's uid. It mounts the door over /run/xpud, read-only, so
// that no user in a container can remove the socket; connecting needs no more.
std::string CdiText(const CdiClaim& claim);
// Reads such a text back. Returns InvalidArgument if CdiText could not have written it.
absl::StatusOr<CdiClaim> ReadCdiText(std::string_view text);

class CdiFiles {
 public:
  // `folder`: one of those that container runtimes read, usually /var/run/cdi.
  explicit CdiFiles(std::string folder) : folder_(std::move(folder)) {}

  // Ensures that the folder exists and can be written, and removes unfinished files of an agent that was
  // killed. REQUIRES: no Write is in progress.
  absl::Status Open() const;

  // Replaces the claim's file, or creates it. Readers see the old file or the new one. Creates the folder if
  // it is missing. On an error, for example a full disk, the old file is unchanged.
  absl::Status Write(const CdiClaim& claim) const;
  // Returns OK if there is no such file.
  absl::Status Remove(std::string_view uid) const;

  // Returns NotFound if there is no such file, and InvalidArgument if it is not as this version writes it.
  absl::StatusOr<CdiClaim> Read(std::string_view uid) const;

  struct Unreadable {
    std::string file, reason;
    std::string uid;  // by the file's name; empty if that is not of a claim
  };
  struct Listing {
    std::vector<CdiClaim> claims;
    std::vector<Unreadable> unreadable;
  };
  // Every file of this driver. Returns an error only if the folder cannot be read; a missing one has no
  // files.
  absl::StatusOr<Listing> List() const;

  // What containers name the device by: "xpud.dev/claim=UID".
  static std::string IdOf(std::string_view uid);

 private:
  std::string PathOf(std::string_view uid) const;

  const std::string folder_;
};

}  // namespace xpud::agent::kubernetes
