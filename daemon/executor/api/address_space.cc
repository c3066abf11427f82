#include "daemon/executor/api/address_space.h"

#include <sys/mman.h>

#include "absl/strings/str_cat.h"

namespace xpud::executor {
namespace {

constexpr uint64_t kSpaceBytes = uint64_t{1} << 39;  // 512 GiB per device
constexpr uint64_t kHostBytes = uint64_t{1} << 36;   // the part for the daemon's memory
constexpr uint64_t kHostUnit = uint64_t{64} << 10;
constexpr uint64_t kClientBytes = uint64_t{1} << 40;  // for clients' memory; a separate range
constexpr uint32_t kMaxDevices = 16;
// Neither programs nor the CUDA driver choose these addresses by themselves (drivers/README.md).
#if defined(__has_feature) && __has_feature(thread_sanitizer)
constexpr uint64_t kBase = uint64_t{1} << 40;  // TSan uses the other range
#else
constexpr uint64_t kBase = uint64_t{0x12} << 40;
#endif
constexpr uint64_t kClientBase = kBase + kMaxDevices * kSpaceBytes;

bool IsFree(uint64_t begin, uint64_t bytes) {
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const got = mmap(wanted, bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  munmap(got, bytes);
  return got == wanted;
}

}  // namespace

absl::StatusOr<AddressSpace> AddressSpace::At(uint32_t index, uint64_t begin, uint64_t bytes, uint64_t unit) {
  if (index >= kMaxDevices)
    return absl::ResourceExhaustedError(
        absl::StrCat("there is address space for ", kMaxDevices, " devices only"));
  if (IsFree(begin, bytes)) return AddressSpace(begin, begin + bytes, unit);
  return absl::ResourceExhaustedError(
      "the addresses for a device's memory are already in use in this process");
}

absl::StatusOr<AddressSpace> AddressSpace::ForChunks(uint32_t index) {
  return At(index, kBase + index * kSpaceBytes + kHostBytes, kSpaceBytes - kHostBytes, kChunkUnit);
}

absl::StatusOr<AddressSpace> AddressSpace::ForHostMemory(uint32_t index) {
  return At(index, kBase + index * kSpaceBytes, kHostBytes, kHostUnit);
}

absl::StatusOr<AddressSpace> AddressSpace::ForClientMemory(uint32_t index) {
  return At(index, kClientBase + index * kClientBytes, kClientBytes, kHostUnit);
}

absl::StatusOr<uint64_t> AddressSpace::Take(uint64_t bytes) {
  bytes = (bytes + unit_ - 1) / unit_ * unit_;
  uint64_t at = begin_;
  for (const auto& [address, end] : taken_) {
    if (address - at >= bytes) break;
    at = end;
  }
  if (end_ - at < bytes) return absl::ResourceExhaustedError("the device's addresses are all in use");
  taken_[at] = at + bytes;
  return at;
}

void AddressSpace::Return(uint64_t address) { taken_.erase(address); }

}  // namespace xpud::executor
