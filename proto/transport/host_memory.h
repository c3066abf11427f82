// Host memory: a memfd of the client, which devices read and write in place. After the handshake the client
// may send ShareMemory with a memfd on its session's socket, one request at a time. The daemon sends one
// answer when the named devices can use the memory. The client chooses the id, which must not be 0 or in use.
// A memfd can be shared once. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mapping.h"
#include "proto/base/unique_fd.h"
#include "proto/transport/transport.h"

namespace xpud::transport {

inline constexpr uint32_t kShareMagic = 0x6d647078;    // "xpdm"
inline constexpr size_t kMaxHostMemories = 64;         // per session
inline constexpr uint64_t kHostMemoryUnit = 64 << 10;  // sizes are multiples of this

struct ShareMemory {  // sent with the memfd
  uint32_t magic;
  uint32_t id;  // not 0
  uint64_t bytes;
  uint64_t devices;  // bit d stands for device d
};
static_assert(sizeof(ShareMemory) == 24);

struct ShareMemoryAnswer {
  uint32_t id;
  uint32_t code;  // absl::StatusCode
  char text[248];
};
static_assert(sizeof(ShareMemoryAnswer) == 256);

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
