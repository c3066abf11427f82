// The devices of the daemon as the agent gives them out. A value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace xpud::agent {

struct DeviceState {
  uint32_t index = 0;            // the daemon's number of it
  std::string model;             // its name from Level Zero
  std::string kind;              // "cpu" or "gpu"
  std::string vendor;            // the Level Zero driver: "cpu", "cuda", "intel"
  std::string driver;            // that driver's library and version
  std::string pci_address = {};  // "0000:65:00.0"; empty: not known
  std::string pcie_root = {};    // "pci0000:64", the root complex to which it is connected; empty: not known
  std::optional<uint32_t> numa_node = {};  // of the memory and CPUs next to it
  uint32_t compute_units = 0;
  // What the daemon would guarantee without this agent's claims.
  uint64_t memory_bytes = 0;
  uint32_t share = 0;  // hundredths of what the daemon guarantees at all, which is 95% of the device's time
  std::string unhealthy = {};  // why no work can run on it; empty: it is healthy

  bool operator==(const DeviceState&) const = default;
};

struct Inventory {
  std::vector<DeviceState> devices;  // by index; while the daemon does not answer, as they were last seen
  uint32_t claims = 0;               // that may exist, without those of others
  bool drained = false;              // the daemon refuses new sessions

  bool operator==(const Inventory&) const = default;
};

}  // namespace xpud::agent
