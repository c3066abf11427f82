#include "daemon/executor/process/executor_memory.h"

#include <sys/mman.h>

#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr auto kAwaitHost = std::chrono::milliseconds(100);  // then the daemon sees whether it still wants it

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

// The element whose range would contain `address`; end if there is none.
template <typename Map>
auto Before(Map& map, uint64_t address) {
  const auto after = map.upper_bound(address);
  return after == map.begin() ? map.end() : std::prev(after);
}

}  // namespace

struct ExecutorMemory::Host {
  ~Host() {
    memory.reset();
    munmap(Pointer(address), bytes);
  }
  const uint64_t address, bytes;
  std::unique_ptr<HostMemory> memory;
};

ExecutorMemory::ChunkPointer ExecutorMemory::Find(uint64_t address) {
  const MutexLock lock(mutex_);
  const auto found = chunks_.find(address);
  return found == chunks_.end() ? nullptr : found->second;
}

absl::Status ExecutorMemory::Add(uint64_t address, absl::StatusOr<std::unique_ptr<Chunk>> chunk) {
  RETURN_IF_ERROR(chunk.status());
  const MutexLock lock(mutex_);
  chunks_[address] = *std::move(chunk);
  return absl::OkStatus();
}

absl::Status ExecutorMemory::Allocate(uint64_t address, uint64_t bytes, UniqueFd& out) {
  if (const ChunkPointer chunk = Find(address)) return memory_.ReturnNew(*chunk, out);
  return Add(address, memory_.AllocateAt(Pointer(address), bytes, out));
}

absl::Status ExecutorMemory::Import(uint64_t address, uint64_t bytes, const UniqueFd& fd) {
  if (const ChunkPointer chunk = Find(address)) return memory_.ReturnImported(*chunk, fd);
  return Add(address, memory_.ImportAt(Pointer(address), bytes, fd));
}

absl::Status ExecutorMemory::Reserve(uint64_t address, uint64_t bytes) {
  if (const ChunkPointer chunk = Find(address)) return memory_.TakeAway(*chunk);
  return Add(address, memory_.ReserveAt(Pointer(address), bytes));
}

void ExecutorMemory::Free(uint64_t address) {
  ChunkPointer freed;  // the lock is not held while its memory is given back
  const MutexLock lock(mutex_);
  if (const auto found = chunks_.find(address); found != chunks_.end()) {
    freed = std::move(found->second);
    chunks_.erase(found);
  }
}

absl::Status ExecutorMemory::ImportHost(LevelZeroDevice& importer, uint64_t address, uint64_t bytes,
                                        const UniqueFd& fd) {
  void* const mapped =
      mmap(Pointer(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd.get(), 0);
  if (mapped == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping shared memory failed");
  const auto host = std::make_shared<Host>(address, bytes);
  ASSIGN_OR_RETURN(host->memory, importer.Import({{static_cast<std::byte*>(mapped), bytes}, fd.get()}));
  const MutexLock lock(mutex_);
  hosts_[address] = host;
  added_.NotifyAll();
  return absl::OkStatus();
}

void ExecutorMemory::ReleaseHost(uint64_t address) {
  HostPointer released;
  const MutexLock lock(mutex_);
  if (const auto found = hosts_.find(address); found != hosts_.end()) {
    released = std::move(found->second);
    hosts_.erase(found);
  }
}

ExecutorMemory::ChunkPointer ExecutorMemory::ChunkWith(uint64_t address) {
  const MutexLock lock(mutex_);
  const auto found = Before(chunks_, address);
  return found == chunks_.end() ? nullptr : found->second;
}

// After the loss of an executor, host memory that was registered slowly comes last.
ExecutorMemory::HostPointer ExecutorMemory::AwaitHost(uint64_t address, uint64_t bytes) {
  const auto until = std::chrono::steady_clock::now() + kAwaitHost;
  const MutexLock lock(mutex_);
  for (;;) {
    const auto found = Before(hosts_, address);
    if (found != hosts_.end()) {
      const Host& host = *found->second;
      const uint64_t offset = address - host.address;
      if (offset <= host.bytes && bytes <= host.bytes - offset) return found->second;
    }
    const auto left = until - std::chrono::steady_clock::now();
    if (left.count() <= 0 || !added_.WaitFor(mutex_, left)) return nullptr;
  }
}

absl::Status ExecutorMemory::Copy(BlockingList& list, LevelZeroMemory::Way way, uint64_t address,
                                  uint64_t host, uint64_t bytes) {
  const ChunkPointer chunk = ChunkWith(address);
  if (chunk == nullptr) return absl::InternalError("the executor has no chunk at this address");
  const HostPointer at = AwaitHost(host, bytes);  // is there until the copy has ended
  if (at == nullptr)
    return absl::NotFoundError(
        absl::StrCat("the executor has no ", bytes, " bytes of host memory at 0x", absl::Hex(host)));
  const uint64_t offset = address - reinterpret_cast<uint64_t>(chunk->address());
  return memory_.CopyPiece(list, way, *chunk, offset, static_cast<std::byte*>(Pointer(host)), bytes);
}

}  // namespace xpud::executor::process
