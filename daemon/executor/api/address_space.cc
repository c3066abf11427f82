#include "daemon/executor/api/address_space.h"

#include <sys/mman.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"

namespace xpud::executor {
namespace {

constexpr uint64_t kGibibyte = uint64_t{1} << 30;
constexpr uint64_t kTebibyte = uint64_t{1} << 40;
constexpr uint64_t kHostUnit = uint64_t{64} << 10;
constexpr uint64_t kMaxDevices = 16;
// Neither programs nor the CUDA driver choose these addresses by themselves (drivers/README.md). For each
// device a part for the daemon's memory, and one for clients' memory; then device memory.
#if defined(__has_feature) && __has_feature(thread_sanitizer)
constexpr uint64_t kBegin = 1 * kTebibyte, kEnd = 2 * kTebibyte;  // TSan uses the other range
constexpr uint64_t kHostBytes = 8 * kGibibyte, kClientBytes = 16 * kGibibyte;
#else
constexpr uint64_t kBegin = 18 * kTebibyte, kEnd = 64 * kTebibyte;
constexpr uint64_t kHostBytes = 64 * kGibibyte, kClientBytes = kTebibyte;
#endif
constexpr uint64_t kClientBegin = kBegin + kMaxDevices * kHostBytes;
constexpr uint64_t kChunkBegin = kClientBegin + kMaxDevices * kClientBytes;

bool IsFree(uint64_t begin, uint64_t bytes) {
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const got = mmap(wanted, bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  munmap(got, bytes);
  return got == wanted;
}

}  // namespace

// Thread-safe.
class AddressSpace::FreeRanges {
 public:
  FreeRanges(uint64_t begin, uint64_t bytes, uint64_t unit) : unit_(unit) { ends_[begin] = begin + bytes; }

  // Takes the lowest addresses where `bytes`, in whole units, fit. Returns their begin and end.
  absl::StatusOr<std::pair<uint64_t, uint64_t>> Take(uint64_t bytes) {
    const MutexLock lock(mutex_);
    const uint64_t whole = ((bytes == 0 ? 0 : bytes - 1) / unit_ + 1) * unit_;
    for (auto range = ends_.begin(); range != ends_.end(); ++range) {
      const auto [begin, end] = *range;
      if (whole < bytes || end - begin < whole) continue;
      if (end - begin > whole) ends_.emplace_hint(std::next(range), begin + whole, end);
      ends_.erase(range);
      return std::pair(begin, begin + whole);
    }
    return absl::ResourceExhaustedError("the addresses for devices' memory are all in use");
  }

  void Return(uint64_t begin, uint64_t end) {
    const MutexLock lock(mutex_);
    auto next = ends_.lower_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second == begin) {
      begin = std::prev(next)->first;
      ends_.erase(std::prev(next));
    }
    if (next != ends_.end() && next->first == end) {
      end = next->second;
      ends_.erase(next);
    }
    ends_[begin] = end;
  }

 private:
  const uint64_t unit_;
  Mutex mutex_;
  std::map<uint64_t, uint64_t> ends_ ABSL_GUARDED_BY(mutex_);  // of free ranges, by their begin
};

absl::StatusOr<std::shared_ptr<AddressSpace::FreeRanges>> AddressSpace::Open(uint64_t begin, uint64_t bytes,
                                                                             uint64_t unit) {
  if (IsFree(begin, bytes)) return std::make_shared<FreeRanges>(begin, bytes, unit);
  return absl::ResourceExhaustedError("the addresses for devices' memory are already in use in this process");
}

absl::StatusOr<AddressSpace> AddressSpace::OfDevice(uint32_t index, uint64_t begin, uint64_t bytes) {
  if (index >= kMaxDevices)
    return absl::ResourceExhaustedError(
        absl::StrCat("there is address space for ", kMaxDevices, " devices only"));
  ASSIGN_OR_RETURN(auto free, Open(begin + index * bytes, bytes, kHostUnit));
  return AddressSpace(std::move(free));
}

absl::StatusOr<AddressSpace> AddressSpace::ForChunks() {
  static const auto& chunks =
      *new absl::StatusOr<std::shared_ptr<FreeRanges>>(Open(kChunkBegin, kEnd - kChunkBegin, kChunkUnit));
  RETURN_IF_ERROR(chunks.status());
  return AddressSpace(*chunks);
}

absl::StatusOr<AddressSpace> AddressSpace::ForHostMemory(uint32_t index) {
  return OfDevice(index, kBegin, kHostBytes);
}

absl::StatusOr<AddressSpace> AddressSpace::ForClientMemory(uint32_t index) {
  return OfDevice(index, kClientBegin, kClientBytes);
}

AddressSpace::AddressSpace(AddressSpace&& other) noexcept
    : free_(std::move(other.free_)), taken_(std::exchange(other.taken_, {})) {}

AddressSpace& AddressSpace::operator=(AddressSpace&& other) noexcept {
  std::swap(free_, other.free_);
  std::swap(taken_, other.taken_);
  return *this;
}

AddressSpace::~AddressSpace() {
  for (const auto& [address, end] : taken_) free_->Return(address, end);
}

absl::StatusOr<uint64_t> AddressSpace::Take(uint64_t bytes) {
  ASSIGN_OR_RETURN(const auto range, free_->Take(bytes));
  taken_.insert(range);
  return range.first;
}

void AddressSpace::Return(uint64_t address) {
  const auto found = taken_.find(address);
  if (found == taken_.end()) return;
  free_->Return(address, found->second);
  taken_.erase(found);
}

}  // namespace xpud::executor
