#include "proto/base/out_of_memory.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xpud {
namespace {

std::string Tried(uint64_t asked, uint32_t device, uint64_t total) {
  return absl::StrCat(kOutOfMemoryOpening, "Tried to allocate ", BytesText(asked), ". Device ", device,
                      " has a total capacity of ", BytesText(total));
}

std::string UsedAndFree(uint64_t used, uint64_t all, const char* by) {
  return absl::StrCat(BytesText(used), " is in use", by, " and ", BytesText(all - std::min(used, all)),
                      " is free.");
}

}  // namespace

std::string BytesText(uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

absl::Status DeviceOutOfMemory(uint64_t asked, uint32_t device, uint64_t total, uint64_t used,
                               const std::string& cause) {
  return absl::ResourceExhaustedError(absl::StrCat(Tried(asked, device, total), ", of which ",
                                                   UsedAndFree(used, total, " by all processes"),
                                                   cause.empty() ? "" : " The driver says: ", cause));
}

absl::Status ProcessOutOfMemory(uint64_t asked, uint32_t device, uint64_t total, uint64_t limit,
                                uint64_t used) {
  return absl::ResourceExhaustedError(absl::StrCat(Tried(asked, device, total), "; of the ", BytesText(limit),
                                                   " that this process may hold, ",
                                                   UsedAndFree(used, limit, "")));
}

bool IsOutOfMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && absl::StartsWith(status.message(), kOutOfMemoryOpening);
}

}  // namespace xpud
