// Compiled code on disk, shared by processes of one user. Files are named by a hash of everything that
// determines the code and carry that identity, a length and a checksum: a file that is truncated, corrupt or
// another's is a miss, and is replaced. Writers use a temporary file and rename, so readers never see half a
// file. What was not used for longest makes room; what this process has in use does not. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::kernels {

class ObjectCache {
 public:
  // Opens (creating it with mode 0700) `directory`, an absolute path chosen by the daemon's configuration.
  // PermissionDenied when it belongs to another user, may be written by others, or is not a directory.
  // `limit`: bytes that all files together may have; each process that writes may exceed it by a sixteenth.
  static absl::StatusOr<std::unique_ptr<ObjectCache>> Open(const std::string& directory,
                                                           uint64_t limit = UINT64_MAX);

  // NotFound: compile, then Save. What is loaded or saved is in use until it is released.
  absl::StatusOr<std::string> Load(const std::string& identity);
  // Best effort: an error, for example a full disk, only costs the next process a compile.
  absl::Status Save(const std::string& identity, const std::string& code);
  void Release(const std::string& identity);
  // As Open's, from the next Save on.
  void SetLimit(uint64_t bytes);

 private:
  struct File;

  ObjectCache(UniqueFd directory, uint64_t limit) : directory_(std::move(directory)), limit_(limit) {}
  absl::StatusOr<std::string> Read(const std::string& name, const std::string& identity) const;
  absl::Status Write(const std::string& name, const std::string& identity, const std::string& code) const;
  // Where so much may have been added since the last look that files must go.
  void MakeRoom(uint64_t added);
  // Everything that was written here.
  std::vector<File> List() const;

  const UniqueFd directory_;
  Mutex mutex_;
  uint64_t limit_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> in_use_ ABSL_GUARDED_BY(mutex_);  // names of files
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;              // since the last look
};

}  // namespace xpud::kernels
