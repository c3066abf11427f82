// Host memory: a memfd of the client's own, which devices read and write in place. After the handshake a
// client may send ShareMemory with the memfd on its session's socket, one at a time, and gets one answer,
// once the devices that it names have the memory. The id is the client's choice, not 0 and not in use. A
// memfd is shared once. Any thread.
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
inline constexpr size_t kMaxHostMemories = 64;         // of one session
inline constexpr uint64_t kHostMemoryUnit = 64 << 10;  // its size is a multiple of this

struct ShareMemory {  // carries the memfd
  uint32_t magic;
  uint32_t id;  // not 0
  uint64_t bytes;
  uint64_t devices;  // bit d: of device d
};
static_assert(sizeof(ShareMemory) == 24);

struct ShareMemoryAnswer {
  uint32_t id;
  uint32_t code;  // absl::StatusCode
  char text[248];
};
static_assert(sizeof(ShareMemoryAnswer) == 256);

// The client's part: memory of `bytes` that exists and whose size can no longer change. ResourceExhausted
// when there is none.
absl::StatusOr<UniqueFd> CreateHostMemory(uint64_t bytes);

// The daemon's hold on host memory.
class ClientMemory {
 public:
  // InvalidArgument unless `fd` is a memfd of at least `bytes`, sealed against changes of its size but not of
  // its seals, writable, and with all its pages.
  static absl::StatusOr<ClientMemory> Accept(UniqueFd fd, uint64_t bytes);
  // Adds the seals that are the daemon's to add, so that the pages stay the client's: it cannot give them
  // back, for who touched them next would pay for new ones. Memory that executor processes map is only kept
  // from further seals, as the next one must be able to map it too. InvalidArgument where pages are missing
  // by now.
  absl::Status Seal(bool for_executors) const;

  SharedBytes memory() const { return {{mapping_.data(), mapping_.size()}, fd_.get()}; }

 private:
  ClientMemory(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
};

}  // namespace xpud::transport
