// A file without a name, for what has left devices and has no room in host memory. Its bytes are reserved on
// the disk from the beginning, so a disk that is full is an error at the start. Thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud::memory {

class MovedOutFile {
 public:
  // Makes a file of `bytes` in `folder`, which no other user may write to. Returns an error that says what to
  // do if the folder cannot be used or its file system lacks space.
  static absl::StatusOr<std::shared_ptr<const MovedOutFile>> Create(const std::string& folder,
                                                                    uint64_t bytes);
  virtual ~MovedOutFile() = default;
  MovedOutFile(const MovedOutFile&) = delete;
  MovedOutFile& operator=(const MovedOutFile&) = delete;

  // All of the bytes, or an error. They may wait for the disk. The addresses are aligned to pages.
  absl::Status Write(std::span<const std::byte> bytes, uint64_t offset) const;
  absl::Status Read(std::span<std::byte> bytes, uint64_t offset) const;

 protected:
  explicit MovedOutFile(UniqueFd fd) : fd_(std::move(fd)) {}
  // As pwrite and pread. A seam for tests.
  virtual ssize_t WriteSome(std::span<const std::byte> bytes, uint64_t offset) const;
  virtual ssize_t ReadSome(std::span<std::byte> bytes, uint64_t offset) const;

 private:
  const UniqueFd fd_;
};

}  // namespace xpud::memory
