// PCI addresses as text. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

namespace xpud::drivers {

// Reads "0000:17:00.0": hexadecimal numbers of up to eight digits, in lower or upper case. Returns false, and
// leaves `address` alone, for any other text.
bool ReadPciAddress(const char* text, ze_pci_address_ext_t& address);

}  // namespace xpud::drivers
