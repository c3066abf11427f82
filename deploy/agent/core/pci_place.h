// Where a device on PCI is in its machine, as the kernel says. A value and a function; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/base/pci_address.h"

namespace xpud::agent {

struct PciPlace {
  std::string root;                        // "pci0000:64", the root complex; empty: not known
  std::optional<uint32_t> numa_node = {};  // nullopt: the machine has none, or it is not known
};

// `sysfs` is "/sys". Nothing is known of an unknown address, and of a device that sysfs does not have.
PciPlace ReadPciPlace(const std::string& sysfs, const PciAddress& address);

}  // namespace xpud::agent
