#include "proto/base/out_of_memory.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace xpud {
namespace {

const char* OfWhat(MemoryShortage::Scope scope) {
  switch (scope) {
    case MemoryShortage::Scope::kProcess:
      return " that this process may hold, ";
    case MemoryShortage::Scope::kUser:
      return " that this user's processes may hold, ";
    default:
      return " that all processes share, ";
  }
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

absl::Status OutOfMemory(uint64_t asked, uint32_t device, uint64_t total, const MemoryShortage& shortage,
                         const std::string& cause) {
  const auto& [scope, limit, used] = shortage;
  return absl::ResourceExhaustedError(absl::StrCat(
      kOutOfMemoryOpening, "Tried to allocate ", BytesText(asked), ". Device ", device,
      " has a total capacity of ", BytesText(total), "; of the ", BytesText(limit), OfWhat(scope),
      BytesText(used), " is in use and ", BytesText(limit - std::min(used, limit)), " is free.",
      cause.empty() ? "" : " The driver says: ", cause));
}

bool IsOutOfMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && absl::StartsWith(status.message(), kOutOfMemoryOpening);
}

}  // namespace xpud
