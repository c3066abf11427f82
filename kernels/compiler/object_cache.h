// Compiled code on disk, shared by processes of one user. Files are named by a hash of everything that
// determines the code and carry that identity, a length and a checksum: a file that is truncated, corrupt or
// another's is a miss, and is replaced. Writers use a temporary file and rename, so readers never see half a
// file. Any thread.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::kernels {

class ObjectCache {
 public:
  // Opens (creating it with mode 0700) `directory`, an absolute path chosen by the daemon's configuration.
  // PermissionDenied when it belongs to another user, may be written by others, or is not a directory.
  static absl::StatusOr<std::unique_ptr<ObjectCache>> Open(const std::string& directory);

  // NotFound: compile, then Save.
  absl::StatusOr<std::string> Load(const std::string& identity) const;
  // Best effort: a full disk only costs the next process a compile.
  void Save(const std::string& identity, const std::string& code) const;

 private:
  explicit ObjectCache(UniqueFd directory) : directory_(std::move(directory)) {}

  const UniqueFd directory_;
};

}  // namespace xpud::kernels
