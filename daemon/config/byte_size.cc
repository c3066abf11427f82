#include "daemon/config/byte_size.h"

#include <charconv>
#include <cmath>
#include <string_view>

namespace xpud {

std::optional<uint64_t> ParseBytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  constexpr std::string_view kPrefixes = "KMGT";
  if (!unit.empty() && unit != "B") {
    const size_t power = kPrefixes.find(unit[0]);
    if (power == kPrefixes.npos) return std::nullopt;
    number = std::ldexp(number, static_cast<int>(power + 1) * 10);
    unit.remove_prefix(1);
    if (!unit.empty() && unit != "iB" && unit != "B") return std::nullopt;
  }
  if (number >= 0x1p63) return std::nullopt;
  return static_cast<uint64_t>(number);
}

}  // namespace xpud
