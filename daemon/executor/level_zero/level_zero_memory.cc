#include "daemon/executor/level_zero/level_zero_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/executor/level_zero/ze_status.h"
#include "proto/base/status_macros.h"
#include "proto/base/ze_ext.h"

namespace xpud::executor {
namespace {

constexpr size_t kChunkAlignment = 2 << 20;
static_assert(AddressSpace::kChunkUnit == XPUD_MEM_ADDRESS_UNIT);
constexpr int kMaxPlaces = 64;  // that are tried for a chunk

constexpr ze_external_memory_export_desc_t kExported = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC,
                                                        nullptr, ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD};

ze_external_memory_import_fd_t ImportOf(const UniqueFd& fd) {
  return {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD, nullptr, ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD,
          fd.get()};
}

absl::Status CannotMove() { return absl::UnimplementedError("the Level Zero driver has no virtual memory"); }

// Callers take Unavailable to mean that the executor is being replaced, and wait.
absl::Status OfThisProcess(const absl::Status& status) {
  return absl::IsUnavailable(status) ? absl::InternalError(status.message()) : status;
}

}  // namespace

class LevelZeroMemory::PlainChunk final : public Chunk {
 public:
  PlainChunk(ze_context_handle_t context, void* address, uint64_t bytes)
      : Chunk(static_cast<std::byte*>(address), bytes), context_(context) {}
  ~PlainChunk() override { zeMemFree(context_, address()); }

 private:
  ze_context_handle_t context_;
};

// Reserved addresses into which physical memory is mapped, unless it is away.
class LevelZeroMemory::ReservedChunk final : public Chunk {
 public:
  ReservedChunk(LevelZeroMemory& owner, void* address, uint64_t bytes, uint64_t pages)
      : Chunk(static_cast<std::byte*>(address), bytes), owner_(owner), pages_(pages) {}
  ~ReservedChunk() override {
    zeVirtualMemFree(owner_.context_, address(), pages_);  // also unmaps
    if (memory_ != nullptr) zePhysicalMemDestroy(owner_.context_, memory_);
    if (taken_ != 0) owner_.addresses_->Return(taken_);
  }

  // The chunk's destructor returns this address to the device's address space.
  void Own(uint64_t taken) { taken_ = taken; }

  // Maps memory that the chain of a ze_physical_mem_desc_t describes, in place of what is there.
  absl::Status Map(const void* chain) {
    RETURN_IF_ERROR(Unmap());
    ze_physical_mem_desc_t desc = {ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC, chain, 0, pages_};
    RETURN_IF_ZE_ERROR(zePhysicalMemCreate(owner_.context_, owner_.device_, &desc, &memory_));
    const ze_result_t mapped =
        zeVirtualMemMap(owner_.context_, address(), pages_, memory_, 0, ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE);
    if (mapped != ZE_RESULT_SUCCESS) zePhysicalMemDestroy(owner_.context_, std::exchange(memory_, nullptr));
    return ToStatus(mapped, "zeVirtualMemMap");
  }

  bool there() const { return memory_ != nullptr; }

  // If that fails, the memory is still there.
  absl::Status Unmap() {
    if (memory_ == nullptr) return absl::OkStatus();
    RETURN_IF_ZE_ERROR(zeVirtualMemUnmap(owner_.context_, address(), pages_));
    const ze_result_t destroyed = zePhysicalMemDestroy(owner_.context_, std::exchange(memory_, nullptr));
    return destroyed == ZE_RESULT_ERROR_DEVICE_LOST ? ToStatus(destroyed, "zePhysicalMemDestroy")
                                                    : absl::OkStatus();
  }

 private:
  LevelZeroMemory& owner_;
  const uint64_t pages_;                       // bytes, in whole pages
  ze_physical_mem_handle_t memory_ = nullptr;  // null: it is away
  uint64_t taken_ = 0;
};

absl::StatusOr<std::unique_ptr<LevelZeroMemory>> LevelZeroMemory::Open(ze_context_handle_t context,
                                                                       ze_device_handle_t device,
                                                                       Options options) {
  std::unique_ptr<LevelZeroMemory> memory(new LevelZeroMemory(context, device, std::move(options)));
  RETURN_IF_ERROR(memory->FindVirtualMemory());
  return memory;
}

absl::Status LevelZeroMemory::FindVirtualMemory() {
  size_t page = 0;
  const ze_result_t asked = zeVirtualMemQueryPageSize(context_, device_, kChunkAlignment, &page);
  if (asked == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE) return absl::OkStatus();
  RETURN_IF_ERROR(ToStatus(asked, "zeVirtualMemQueryPageSize"));
  if (page == 0) return absl::OkStatus();
  // Intel's driver of 2022 knows pages, and reserves none.
  ASSIGN_OR_RETURN(AddressSpace addresses, AddressSpace::ForChunks());
  ASSIGN_OR_RETURN(const uint64_t start, addresses.Take(kChunkAlignment));
  const auto reserved = MakeReserved(reinterpret_cast<void*>(start), kChunkAlignment);
  virtual_memory_ = !absl::IsUnimplemented(reserved.status());
  return absl::OkStatus();
}

// The error for a driver without our extensions. A device in a process of its own must share its memory with
// the process that replaces that one.
absl::Status LevelZeroMemory::CannotShare(const char* what) const {
  return absl::UnimplementedError(absl::StrCat("the driver of device '", options_.device_name, "' cannot ",
                                               what,
                                               ", as a device in a process of its own must: use "
                                               "--executor thread"));
}

absl::Status LevelZeroMemory::CheckShares() const {
  return options_.exports ? absl::OkStatus() : CannotShare("export memory as a file descriptor");
}

const void* LevelZeroMemory::Exported() const { return options_.exports ? &kExported : nullptr; }

// ---- chunks

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::MakePlain(const void* chain, uint64_t bytes) const {
  const ze_device_mem_alloc_desc_t desc = {ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, chain, 0, 0};
  void* address = nullptr;
  RETURN_IF_ZE_ERROR(zeMemAllocDevice(context_, &desc, bytes, kChunkAlignment, device_, &address));
  return std::make_unique<PlainChunk>(context_, address, bytes);
}

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::MakePlainAt(void* address, const void* chain,
                                                                    uint64_t bytes) const {
  const xpud_mem_address_desc_t place = {XPUD_STRUCTURE_TYPE_MEM_ADDRESS_DESC, chain, address};
  ASSIGN_OR_RETURN(auto chunk, MakePlain(&place, bytes));
  if (chunk->address() != address) return CannotShare("place memory at an address");
  return chunk;
}

// Drivers of other vendors take `start` as a hint.
absl::StatusOr<std::unique_ptr<LevelZeroMemory::ReservedChunk>> LevelZeroMemory::MakeReserved(
    void* start, uint64_t bytes) {
  size_t page = 0;
  RETURN_IF_ZE_ERROR(zeVirtualMemQueryPageSize(context_, device_, bytes, &page));
  const uint64_t pages = (bytes + page - 1) / page * page;
  void* address = nullptr;
  RETURN_IF_ZE_ERROR(zeVirtualMemReserve(context_, start, pages, &address));
  return std::make_unique<ReservedChunk>(*this, address, bytes, pages);
}

absl::StatusOr<std::unique_ptr<LevelZeroMemory::ReservedChunk>> LevelZeroMemory::MakeReservedAt(
    void* address, uint64_t bytes) {
  ASSIGN_OR_RETURN(auto chunk, MakeReserved(address, bytes));
  if (chunk->address() != address) return CannotShare("reserve addresses");
  return chunk;
}

// Addresses that something else of the process has taken stay taken.
absl::StatusOr<std::unique_ptr<LevelZeroMemory::ReservedChunk>> LevelZeroMemory::MakeReservedAnywhere(
    uint64_t bytes) {
  absl::Status status;
  for (int i = 0; i < kMaxPlaces; ++i) {
    uint64_t start = 0;
    if (addresses_.has_value()) {
      ASSIGN_OR_RETURN(start, addresses_->Take(bytes));
    }
    auto chunk = MakeReserved(reinterpret_cast<void*>(start), bytes);
    if (chunk.ok()) {
      (*chunk)->Own(start);
      return chunk;
    }
    status = chunk.status();
    if (absl::IsAlreadyExists(status)) continue;
    if (start != 0) addresses_->Return(start);
    break;
  }
  return OfThisProcess(status);
}

// ---- as executor::Device

absl::Status LevelZeroMemory::ChooseAddresses() {
  if (!virtual_memory_) return absl::OkStatus();
  ASSIGN_OR_RETURN(addresses_, AddressSpace::ForChunks());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::Allocate(uint64_t bytes) {
  if (virtual_memory_) {
    ASSIGN_OR_RETURN(auto chunk, MakeReservedAnywhere(bytes));
    if (absl::Status filled = Fill(*chunk); !filled.ok()) return OfThisProcess(filled);
    return chunk;
  }
  auto chunk = MakePlain(Exported(), bytes);
  if (!chunk.ok()) return OfThisProcess(chunk.status());
  if (!options_.new_is_zero) RETURN_IF_ERROR(Clear(**chunk));
  return chunk;
}

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::Reserve(uint64_t bytes) {
  if (!virtual_memory_) return CannotMove();
  return MakeReservedAnywhere(bytes);
}

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::MapPeer(const UniqueFd& memory, uint64_t bytes) {
  if (!virtual_memory_) return CannotMove();
  ASSIGN_OR_RETURN(auto chunk, MakeReservedAnywhere(bytes));
  if (absl::Status mapped = ReturnImported(*chunk, memory); !mapped.ok()) return OfThisProcess(mapped);
  return chunk;
}

absl::StatusOr<UniqueFd> LevelZeroMemory::Export(const Chunk& chunk) const {
  RETURN_IF_ERROR(CheckShares());
  UniqueFd fd;
  RETURN_IF_ERROR(ExportTo(chunk, fd));
  return fd;
}

absl::Status LevelZeroMemory::ExportTo(const Chunk& chunk, UniqueFd& fd) const {
  ze_external_memory_export_fd_t exported = {ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD, nullptr,
                                             ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD, -1};
  ze_memory_allocation_properties_t properties = {};
  properties.stype = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES;
  properties.pNext = &exported;
  RETURN_IF_ZE_ERROR(zeMemGetAllocProperties(context_, chunk.address(), &properties, nullptr));
  fd.Reset(exported.fd);
  return absl::OkStatus();
}

// ---- for executors

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::AllocateAt(void* address, uint64_t bytes,
                                                                   UniqueFd& fd) {
  if (virtual_memory_) {
    ASSIGN_OR_RETURN(auto chunk, MakeReservedAt(address, bytes));
    RETURN_IF_ERROR(ReturnNew(*chunk, fd));
    return chunk;
  }
  ASSIGN_OR_RETURN(auto chunk, MakePlainAt(address, &kExported, bytes));
  RETURN_IF_ERROR(ExportTo(*chunk, fd));
  return chunk;
}

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::ImportAt(void* address, uint64_t bytes,
                                                                 const UniqueFd& fd) {
  if (virtual_memory_) {
    ASSIGN_OR_RETURN(auto chunk, MakeReservedAt(address, bytes));
    RETURN_IF_ERROR(ReturnImported(*chunk, fd));
    return chunk;
  }
  const ze_external_memory_import_fd_t imported = ImportOf(fd);
  return MakePlainAt(address, &imported, bytes);
}

absl::StatusOr<std::unique_ptr<Chunk>> LevelZeroMemory::ReserveAt(void* address, uint64_t bytes) {
  if (!virtual_memory_) return CannotMove();
  return MakeReservedAt(address, bytes);
}

absl::Status LevelZeroMemory::ReturnNew(Chunk& chunk, UniqueFd& fd) {
  if (!virtual_memory_) return CannotMove();
  auto& reserved = static_cast<ReservedChunk&>(chunk);
  RETURN_IF_ERROR(reserved.Map(&kExported));
  absl::Status exported = ExportTo(chunk, fd);
  if (!exported.ok()) reserved.Unmap().IgnoreError();
  return exported;
}

absl::Status LevelZeroMemory::ReturnImported(Chunk& chunk, const UniqueFd& fd) {
  if (!virtual_memory_) return CannotMove();
  const ze_external_memory_import_fd_t imported = ImportOf(fd);
  return static_cast<ReservedChunk&>(chunk).Map(&imported);
}

// ---- moves

absl::Status LevelZeroMemory::Fill(Chunk& chunk) const {
  if (!virtual_memory_) return CannotMove();
  auto& reserved = static_cast<ReservedChunk&>(chunk);
  RETURN_IF_ERROR(reserved.Map(Exported()));
  if (options_.new_is_zero) return absl::OkStatus();
  absl::Status cleared = Clear(chunk);
  if (!cleared.ok()) reserved.Unmap().IgnoreError();
  return cleared;
}

// New memory of our drivers is zero. Others may keep what was freed, with the data of another tenant.
absl::Status LevelZeroMemory::Clear(const Chunk& chunk) const {
  ASSIGN_OR_RETURN(const auto list, CreateList());
  return list->Clear(chunk.address(), chunk.bytes());
}

absl::Status LevelZeroMemory::TakeAway(Chunk& chunk) const {
  if (!virtual_memory_) return CannotMove();
  return static_cast<ReservedChunk&>(chunk).Unmap();
}

bool LevelZeroMemory::IsThere(const Chunk& chunk) { return static_cast<const ReservedChunk&>(chunk).there(); }

absl::StatusOr<std::unique_ptr<BlockingList>> LevelZeroMemory::CreateList() const {
  return BlockingList::Create(context_, device_);
}

absl::Status LevelZeroMemory::CopyPiece(BlockingList& list, Way way, const Chunk& chunk, uint64_t offset,
                                        std::byte* host, uint64_t bytes) const {
  if (offset > chunk.bytes() || bytes > chunk.bytes() - offset)
    return absl::OutOfRangeError(
        absl::StrCat(bytes, " bytes at ", offset, " are beyond the chunk's ", chunk.bytes()));
  if (virtual_memory_ && !IsThere(chunk)) return absl::FailedPreconditionError("the chunk's memory is away");
  std::byte* const there = chunk.address() + offset;
  return way == Way::kOut ? list.Copy(host, there, bytes) : list.Copy(there, host, bytes);
}

}  // namespace xpud::executor
