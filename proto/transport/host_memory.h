// Host memory: a memfd of the client, which devices read and write in place. The client shares it by a
// request on its session's socket (requests.h). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/transport.h"

namespace xpud::transport {

inline constexpr size_t kMaxHostMemories = 64;         // per session
inline constexpr uint64_t kHostMemoryUnit = 64 << 10;  // sizes are multiples of this

// For clients: returns a memfd of `bytes` whose pages are allocated and whose size is sealed. Returns
// ResourceExhausted if there is no memory.
absl::StatusOr<UniqueFd> CreateHostMemory(uint64_t bytes);

// The daemon's fd and mapping of a client's host memory.
class ClientMemory {
 public:
  // Returns InvalidArgument unless `fd` is a writable memfd of at least `bytes` whose pages are all
  // allocated, which is sealed against changes of its size but not against further seals.
  static absl::StatusOr<ClientMemory> Accept(UniqueFd fd, uint64_t bytes);
  // Adds the daemon's seals, so that the client cannot free pages: whoever touched a freed page next would be
  // charged for a new one. If `for_executors`, only further seals are forbidden, because a replacement
  // executor process must be able to map the memory. Returns InvalidArgument if pages are missing by now.
  absl::Status Seal(bool for_executors) const;

  SharedBytes memory() const { return {{mapping_.data(), mapping_.size()}, fd_.get()}; }

 private:
  ClientMemory(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
};

}  // namespace xpud::transport
