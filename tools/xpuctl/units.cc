#include "tools/xpuctl/units.h"

#include <array>
#include <cmath>

#include "absl/strings/str_format.h"

namespace xpud::xpuctl {

std::string Bytes(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1023.95 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f B", bytes) : absl::StrFormat("%.1f %s", bytes, kUnits[unit]);
}

std::string Count(double count) {
  if (count < 999.5) return absl::StrFormat("%.0f", count);
  if (count < 999'950) return absl::StrFormat("%.1fk", count / 1e3);
  if (count < 999'950'000) return absl::StrFormat("%.2fM", count / 1e6);
  return absl::StrFormat("%.2fG", count / 1e9);
}

std::string Duration(uint64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  if (seconds < 1e-3) return absl::StrFormat("%.0f us", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.0f ms", seconds * 1e3);
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const auto whole = static_cast<uint64_t>(seconds);
  if (whole < 3600) return absl::StrFormat("%dm %02ds", whole / 60, whole % 60);
  if (whole < 86400) return absl::StrFormat("%dh %02dm", whole / 3600, whole % 3600 / 60);
  return absl::StrFormat("%dd %dh", whole / 86400, whole % 86400 / 3600);
}

uint64_t Whole(double number) { return number >= 0 && number < 9e18 ? static_cast<uint64_t>(number) : 0; }

std::string Percent(double ratio) {
  const bool small = ratio > 0 && ratio < 0.1;
  return small ? absl::StrFormat("%.1f%%", ratio * 100) : absl::StrFormat("%.0f%%", ratio * 100);
}

}  // namespace xpud::xpuctl
