#include "drivers/frontend/pci.h"

#include <charconv>
#include <cstring>

namespace xpud::drivers {

bool ReadPciAddress(const char* text, ze_pci_address_ext_t& address) {
  constexpr char kEnds[] = {':', ':', '.', '\0'};
  uint32_t numbers[4] = {};
  for (int i = 0; i < 4; ++i) {
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), numbers[i], 16);
    if (error != std::errc() || *end != kEnds[i]) return false;
    text = end + 1;
  }
  address = {numbers[0], numbers[1], numbers[2], numbers[3]};
  return true;
}

}  // namespace xpud::drivers
