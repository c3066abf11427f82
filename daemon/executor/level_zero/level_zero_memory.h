// The device memory of one Level Zero device, in chunks. With the driver's virtual memory, a chunk is a range
// of addresses into which memory is mapped, and from which it is taken away; without it, memory that stays.
// A function is Unimplemented where it needs what the driver lacks.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/address_space.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/level_zero/blocking_list.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor {

class LevelZeroMemory {
 public:
  struct Options {
    std::string device_name;   // for errors
    bool exports = false;      // memory, as an fd
    bool new_is_zero = false;  // the driver clears memory that it gives
  };
  static absl::StatusOr<std::unique_ptr<LevelZeroMemory>> Open(ze_context_handle_t context,
                                                               ze_device_handle_t device, Options options);
  LevelZeroMemory(const LevelZeroMemory&) = delete;
  LevelZeroMemory& operator=(const LevelZeroMemory&) = delete;

  // Whether chunks can be reserved, and memory brought to them and taken away.
  bool moves_chunks() const { return virtual_memory_; }
  bool exports() const { return options_.exports; }
  // Whether memory can be shared between processes.
  absl::Status CheckShares() const;

  // ---- as executor::Device, for a device that this process uses alone

  // Allocate, Reserve and MapPeer choose addresses from here on, if the driver has virtual memory. In the
  // daemon's process only; an executor gets the addresses.
  absl::Status ChooseAddresses();
  absl::StatusOr<std::unique_ptr<Chunk>> Allocate(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<Chunk>> Reserve(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<Chunk>> MapPeer(const UniqueFd& memory, uint64_t bytes);
  absl::StatusOr<UniqueFd> Export(const Chunk& chunk) const;

  // ---- at exactly the address that the daemon has chosen, for executors

  // Sets `fd` to one that other processes can import.
  absl::StatusOr<std::unique_ptr<Chunk>> AllocateAt(void* address, uint64_t bytes, UniqueFd& fd);
  // Maps memory of another process.
  absl::StatusOr<std::unique_ptr<Chunk>> ImportAt(void* address, uint64_t bytes, const UniqueFd& fd);
  // Keeps addresses for memory that ReturnNew or ReturnImported brings.
  absl::StatusOr<std::unique_ptr<Chunk>> ReserveAt(void* address, uint64_t bytes);
  // Bring memory, as AllocateAt and ImportAt do, to a chunk of this device, in place of what it has.
  absl::Status ReturnNew(Chunk& chunk, UniqueFd& fd);
  absl::Status ReturnImported(Chunk& chunk, const UniqueFd& fd);

  // ---- moves of a chunk, which one thread at a time may do with it

  // Maps new memory, which is zero, into a reserved chunk.
  absl::Status Fill(Chunk& chunk) const;
  // Takes a chunk's memory away, if there is any. If that fails, it is still there.
  absl::Status TakeAway(Chunk& chunk) const;
  // REQUIRES: moves_chunks().
  static bool IsThere(const Chunk& chunk);
  // A list for CopyPiece: each thread has its own.
  absl::StatusOr<std::unique_ptr<BlockingList>> CreateList() const;
  // Copies between a part of a chunk, which must be there, and host memory that the device knows.
  // Thread-safe.
  enum class Way { kOut, kIn };
  absl::Status CopyPiece(BlockingList& list, Way way, const Chunk& chunk, uint64_t offset, std::byte* host,
                         uint64_t bytes) const;

 private:
  class PlainChunk;
  class ReservedChunk;

  LevelZeroMemory(ze_context_handle_t context, ze_device_handle_t device, Options options)
      : context_(context), device_(device), options_(std::move(options)) {}
  absl::Status FindVirtualMemory();
  absl::Status CannotShare(const char* what) const;
  const void* Exported() const;
  // With virtual memory.
  absl::StatusOr<std::unique_ptr<ReservedChunk>> MakeReserved(void* start, uint64_t bytes);
  absl::StatusOr<std::unique_ptr<ReservedChunk>> MakeReservedAt(void* address, uint64_t bytes);
  absl::StatusOr<std::unique_ptr<ReservedChunk>> MakeReservedAnywhere(uint64_t bytes);
  // Without it. `chain` is of a ze_device_mem_alloc_desc_t.
  absl::StatusOr<std::unique_ptr<Chunk>> MakePlain(const void* chain, uint64_t bytes) const;
  absl::StatusOr<std::unique_ptr<Chunk>> MakePlainAt(void* address, const void* chain, uint64_t bytes) const;
  absl::Status ExportTo(const Chunk& chunk, UniqueFd& fd) const;
  absl::Status Clear(const Chunk& chunk) const;

  const ze_context_handle_t context_;
  const ze_device_handle_t device_;
  const Options options_;
  bool virtual_memory_ = false;            // the driver has it
  std::optional<AddressSpace> addresses_;  // see ChooseAddresses
};

}  // namespace xpud::executor
