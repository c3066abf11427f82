// Memory mappings: shared between processes through sealed memfds, or private. Thread-safe; no locks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/base/unique_fd.h"

namespace xpud {

// Creates a zero-filled memfd of `bytes`, rounded up to a page, whose size is sealed.
absl::StatusOr<UniqueFd> CreateSealedMemfd(const char* name, size_t bytes);

// Gives the memory of a memfd back to the system, from byte `from` (at a page) on: it then reads as zeros in
// every mapping. For memory whose other owner may keep its descriptor for ever; it may read there, so its
// size stays.
void EmptyMemfd(const UniqueFd& fd, uint64_t from = 0);

enum class Access { kReadOnly, kReadWrite };

// Owns a mapping of a memfd, or of private memory. Not inherited over fork (MADV_DONTFORK).
class Mapping {
 public:
  // Maps `bytes` from `offset`. Refuses an fd that is smaller, or a memfd that may still shrink: reading it
  // could raise SIGBUS.
  static absl::StatusOr<Mapping> Map(const UniqueFd& fd, size_t bytes, Access access, uint64_t offset = 0);

  // Maps `bytes` (whole pages) twice in a row, so that a range that wraps around the end of a ring is
  // contiguous in memory. size() is `bytes`.
  static absl::StatusOr<Mapping> MapMirrored(const UniqueFd& fd, size_t bytes, Access access,
                                             uint64_t offset);

  // Maps zeroed private memory, which is populated when touched and returned to the system when unmapped.
  static absl::StatusOr<Mapping> MapPrivate(size_t bytes);

  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return static_cast<std::byte*>(address_); }
  size_t size() const { return bytes_; }

 private:
  // Takes ownership of a result of mmap.
  static absl::StatusOr<Mapping> Own(void* address, size_t bytes);

  void* address_ = nullptr;
  size_t bytes_ = 0;
  size_t reserved_ = 0;  // mapped address space: bytes_, or twice that if mirrored
};

}  // namespace xpud
