#include "drivers/cuda/operations.h"

#include <algorithm>
#include <cstring>

namespace xpud::drivers::cuda {
namespace {

// Up to this size, CUDA has copied a pageable source when the call returns.
constexpr size_t kStagedAtOnce = size_t{64} << 10;

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

enum class Place { kPageable, kHost, kDevice };

// Returns the kind of memory that CUDA knows; pageable if CUDA has neither allocated nor registered it.
Place PlaceOf(const void* pointer) {
  unsigned type = 0;
  if (cu.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, Address(pointer)) != CUDA_SUCCESS)
    return Place::kPageable;
  return type == CU_MEMORYTYPE_HOST ? Place::kHost : Place::kDevice;
}

// CUDA's copies from host to host block until all earlier work is done.
bool IsBetweenPinned(const void* destination, const void* source) {
  return PlaceOf(destination) == Place::kHost && PlaceOf(source) == Place::kHost;
}

// The application may change a pageable source when the append returns.
ze_result_t AfterReading(const Stream& stream, const void* source, size_t size) {
  if (stream.capturing() || size <= kStagedAtOnce || PlaceOf(source) != Place::kPageable)
    return ZE_RESULT_SUCCESS;
  return stream.Wait(UINT64_MAX);
}

ze_result_t RunHost(const Stream& stream, const Entry& entry, const void* const* arguments) {
  constexpr uint32_t kGroup[3] = {0, 0, 0};
  const CudaDevice& device = stream.device();
  xpud_native_list_t native{stream.handle(), device.context(), device.device(), ZE_RESULT_SUCCESS,
                            stream.capturing()};
  entry.host(arguments, kGroup, &native);
  return native.result;
}

template <typename T>
bool Fits(const void* destination, size_t size) {
  return Address(destination) % sizeof(T) == 0 && size % sizeof(T) == 0;
}

template <typename T>
T Read(const std::byte* pattern) {
  T value;
  std::memcpy(&value, pattern, sizeof(T));
  return value;
}

CUDA_MEMCPY3D Box(const RegionCopy& region) {
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  box.srcDevice = Address(region.source);
  box.srcPitch = region.source_pitch;
  box.dstDevice = Address(region.destination);
  box.dstPitch = region.destination_pitch;
  box.WidthInBytes = region.width;
  box.Height = region.height;
  box.Depth = region.depth;
  return box;
}

ze_result_t CopyByRows(const RegionCopy& region, const Stream& stream) {
  for (size_t z = 0; z < region.depth; ++z) {
    for (size_t y = 0; y < region.height; ++y) {
      const Copy row{region.destination + z * region.destination_slice_pitch + y * region.destination_pitch,
                     region.source + z * region.source_slice_pitch + y * region.source_pitch, region.width};
      const ze_result_t result = Run(row, stream);
      if (result != ZE_RESULT_SUCCESS) return result;
    }
  }
  return ZE_RESULT_SUCCESS;
}

}  // namespace

ze_result_t EnqueueLaunch(const Stream& stream, const Entry& entry, const ze_group_count_t& groups,
                          const xpud_group_size_t& group_size, const void* const* arguments) {
  if (entry.function == nullptr) return RunHost(stream, entry, arguments);
  if (groups.groupCountX == 0 || groups.groupCountY == 0 || groups.groupCountZ == 0) [[unlikely]]
    return ZE_RESULT_SUCCESS;
  return stream.device().Check(
      cu.cuLaunchKernel(entry.function, groups.groupCountX, groups.groupCountY, groups.groupCountZ,
                        group_size.groupSizeX, group_size.groupSizeY, group_size.groupSizeZ,
                        entry.local_bytes, stream.handle(), const_cast<void**>(arguments), nullptr));
}

KeptLaunch::KeptLaunch(const CudaKernel& kernel, const void* const* arguments, const ze_group_count_t& groups,
                       const xpud_group_size_t& group_size)
    : code_(kernel.code()),
      entry_(kernel.entry()),
      arguments_(entry_.argument_sizes, arguments),
      groups_(groups),
      group_size_(group_size) {}

ze_result_t Run(const Copy& copy, const Stream& stream) {
  const auto& [destination, source, size] = copy;
  if (size == 0) return ZE_RESULT_SUCCESS;
  const CudaDevice& device = stream.device();
  if (IsBetweenPinned(destination, source))
    return device.Check(device.builtins().Copy(destination, source, size, stream.handle()));
  const ze_result_t result =
      device.Check(cu.cuMemcpyAsync(Address(destination), Address(source), size, stream.handle()));
  return result == ZE_RESULT_SUCCESS ? AfterReading(stream, source, size) : result;
}

ze_result_t Run(const CopyRegion& copy, const Stream& stream) {
  const RegionCopy& region = copy.region;
  if (region.width == 0) return ZE_RESULT_SUCCESS;
  if (IsBetweenPinned(region.destination, region.source)) return CopyByRows(region, stream);
  CUDA_MEMCPY3D box = Box(region);
  // CUDA measures a slice in rows. If a slice is not a whole number of rows, slices are copied one by one.
  const bool whole = region.source_slice_pitch % region.source_pitch == 0 &&
                     region.destination_slice_pitch % region.destination_pitch == 0;
  const size_t slices = whole ? 1 : region.depth;
  if (whole) {
    box.srcHeight = region.source_slice_pitch / region.source_pitch;
    box.dstHeight = region.destination_slice_pitch / region.destination_pitch;
  } else {
    box.Depth = 1;
  }
  for (size_t i = 0; i < slices; ++i) {
    const ze_result_t result = stream.device().Check(cu.cuMemcpy3DAsync(&box, stream.handle()));
    if (result != ZE_RESULT_SUCCESS) return result;
    box.srcDevice += region.source_slice_pitch;
    box.dstDevice += region.destination_slice_pitch;
  }
  return AfterReading(stream, region.source, SIZE_MAX);
}

ze_result_t Run(const Fill& fill, const Stream& stream) {
  const auto& [destination, pattern, pattern_size, size] = fill;
  if (size == 0) return ZE_RESULT_SUCCESS;
  if (pattern_size > kMaxPatternSize) return ZE_RESULT_ERROR_INVALID_SIZE;
  const CUdeviceptr to = Address(destination);
  const CudaDevice& device = stream.device();
  if (pattern_size == 1)
    return device.Check(cu.cuMemsetD8Async(to, Read<uint8_t>(pattern), size, stream.handle()));
  if (pattern_size == 2 && Fits<uint16_t>(destination, size))
    return device.Check(cu.cuMemsetD16Async(to, Read<uint16_t>(pattern), size / 2, stream.handle()));
  if (pattern_size == 4 && Fits<uint32_t>(destination, size))
    return device.Check(cu.cuMemsetD32Async(to, Read<uint32_t>(pattern), size / 4, stream.handle()));
  return device.Check(device.builtins().Fill(destination, pattern, pattern_size, size, stream.handle()));
}

ze_result_t Run(const ResetEvent<EventState>& reset, const Stream& stream) {
  return stream.device().Check(cu.cuStreamWriteValue32(stream.handle(), reset.event->word().address(), 0,
                                                       CU_STREAM_WRITE_VALUE_DEFAULT));
}

ze_result_t Run(const WriteTimestamp& write, const Stream& stream) {
  return stream.device().Check(stream.device().builtins().StoreTime(write.destination, stream.handle()));
}

ze_result_t Run(const QueryTimestamps<EventState>& query, const Stream& stream) {
  static_assert(offsetof(EventWord, end_ns) == offsetof(EventWord, start_ns) + sizeof(uint64_t));
  constexpr size_t kPair = sizeof(ze_kernel_timestamp_data_t);
  for (size_t i = 0; i < query.events.size(); ++i) {
    std::byte* const to = query.target(i);
    const uint64_t* const times = &query.events[i]->word().start_ns;
    for (std::byte* pair : {to, to + kPair}) {  // global, context
      const ze_result_t result = Run(Copy{pair, times, kPair}, stream);
      if (result != ZE_RESULT_SUCCESS) return result;
    }
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t Run(const WriteValue64& write, const Stream& stream) {
  return stream.device().Check(cu.cuStreamWriteValue64(stream.handle(), Address(write.address), write.value,
                                                       CU_STREAM_WRITE_VALUE_DEFAULT));
}

}  // namespace xpud::drivers::cuda
