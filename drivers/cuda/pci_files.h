// What the kernel's files say of a device on PCI, which CUDA does not. Thread-safe.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <string>

namespace xpud::drivers::cuda {

// Returns "/sys/bus/pci/devices/0000:17:00.0".
std::string SysfsFolder(const ze_pci_address_ext_t& address);

// Returns the number of the device's model; 0 if the folder does not say.
uint32_t ReadPciDeviceId(const std::string& folder);

// Returns the fastest link that the device can have, with -1 for what the folder does not say. The bandwidth
// is that of one direction, of all lanes, without the bits of the line code.
ze_pci_speed_ext_t ReadPciSpeed(const std::string& folder);

}  // namespace xpud::drivers::cuda
