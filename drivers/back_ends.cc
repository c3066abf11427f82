// The list of back ends. The CPU comes first, so that it is the default device.
#include <cstdlib>
#include <string_view>

#include "drivers/cpu/driver.h"
#include "drivers/cuda/driver.h"
#include "drivers/frontend/driver.h"
#include "drivers/frontend/installed_drivers.h"

namespace xpud::drivers {
namespace {

constexpr const xpud_back_end_t* kBackEnds[] = {&cpu::kBackEnd, &cuda::kBackEnd};

bool IsWanted(const xpud_back_end_t& back_end) {
  const char* const wanted = std::getenv("XPUD_BACK_ENDS");
  if (wanted == nullptr) return true;
  for (std::string_view rest = wanted; !rest.empty();) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == back_end.name) return true;
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

}  // namespace

std::vector<std::unique_ptr<Driver>> CreateDrivers(std::string& report) {
  std::vector<std::unique_ptr<Driver>> drivers;
  if (IsWanted(cpu::kBackEnd)) drivers.push_back(std::make_unique<cpu::CpuDriver>());
  if (!IsWanted(cuda::kBackEnd)) return drivers;
  std::string reason;
  if (auto driver = cuda::CudaDriver::Create(reason)) {
    drivers.push_back(std::move(driver));
  } else {
    report = "cuda: " + reason;
  }
  return drivers;
}

}  // namespace xpud::drivers

extern "C" __attribute__((visibility("default"))) uint32_t
xpudListBackEnds(const xpud_back_end_t* const** back_ends) {
  *back_ends = xpud::drivers::kBackEnds;
  return std::size(xpud::drivers::kBackEnds);
}
extern "C" __attribute__((visibility("default"))) ze_result_t xpudGetLoadReport(const char** report) {
  *report = xpud::drivers::LoadReport();
  return ZE_RESULT_SUCCESS;
}
static_assert(std::is_same_v<decltype(&xpudListBackEnds), xpud_pfnListBackEnds_t>);
