// Mappings of memory: shared between processes, as sealed memfds, or of this process alone. Any thread; no
// locks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud {

// A memfd of exactly `bytes` (rounded up to a page), zero-filled, whose size can no longer change.
absl::StatusOr<UniqueFd> CreateSealedMemfd(const char* name, size_t bytes);

enum class Access { kReadOnly, kReadWrite };

// A mapping, of a memfd if nothing else is said, unmapped with the object. Not inherited over fork
// (MADV_DONTFORK).
class Mapping {
 public:
  // Maps `bytes` from `offset`. Refuses an fd that is smaller, or a memfd that may still shrink:
  // reading it could raise SIGBUS.
  static absl::StatusOr<Mapping> Map(const UniqueFd& fd, size_t bytes, Access access, uint64_t offset = 0);

  // Maps `bytes` (whole pages) twice, one right behind the other, so that a run of bytes that wraps around
  // the end of a ring is contiguous in memory. size() stays `bytes`.
  static absl::StatusOr<Mapping> MapMirrored(const UniqueFd& fd, size_t bytes, Access access,
                                             uint64_t offset);

  // Zeroed memory of this process's own, which takes what is touched and goes back to the system at once.
  static absl::StatusOr<Mapping> MapPrivate(size_t bytes);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return static_cast<std::byte*>(address_); }
  size_t size() const { return bytes_; }

 private:
  // What mmap has returned.
  static absl::StatusOr<Mapping> Own(void* address, size_t bytes);

  void* address_ = nullptr;
  size_t bytes_ = 0;
  size_t reserved_ = 0;  // address space held: bytes_, or twice that when mirrored
};

}  // namespace xpud
