#include "drivers/cpu/physical_block.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "drivers/cpu/pages.h"

namespace xpud::drivers::cpu {

ze_result_t CpuPhysicalBlock::Create(CpuDevice& device, const MemoryRequest& request, Kind kind,
                                     std::unique_ptr<CpuPhysicalBlock>& block) {
  std::unique_ptr<CpuPhysicalBlock> made(new CpuPhysicalBlock(device, request.size));
  const bool imported = request.import_fd >= 0;
  ze_result_t result = made->Charge(imported);
  if (result == ZE_RESULT_SUCCESS && imported)
    result = made->Import(request.import_fd);
  else if (result == ZE_RESULT_SUCCESS && kind == Kind::kShared)
    result = made->MakeFd();
  if (result == ZE_RESULT_SUCCESS) block = std::move(made);
  return result;
}

// Imported memory is charged to the device that allocated it.
ze_result_t CpuPhysicalBlock::Charge(bool imported) {
  if (size_ > device_.memory()) return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
  const uint64_t bytes = imported ? 0 : size_;
  if (!device_.Charge(bytes)) return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
  charged_ = bytes;
  return ZE_RESULT_SUCCESS;
}

ze_result_t CpuPhysicalBlock::MakeFd() {
  fd_.Reset(memfd_create("xpud-cpu-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.valid()) return ResultOfErrno();
  if (ftruncate(fd_.get(), static_cast<off_t>(RoundUp(size_, kPage))) != 0) return ResultOfErrno();
  const int sealed = fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return sealed == 0 ? ZE_RESULT_SUCCESS : ResultOfErrno();
}

ze_result_t CpuPhysicalBlock::Import(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  if (info.st_size < 0 || static_cast<uint64_t>(info.st_size) < size_) return ZE_RESULT_ERROR_INVALID_SIZE;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  fd_.Reset(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return fd_.valid() ? ZE_RESULT_SUCCESS : ResultOfErrno();
}

ze_result_t CpuPhysicalBlock::Export(int& fd) const {
  fd = fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0);
  return fd >= 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

CpuPhysicalBlock::~CpuPhysicalBlock() { device_.Discharge(charged_); }

}  // namespace xpud::drivers::cpu
