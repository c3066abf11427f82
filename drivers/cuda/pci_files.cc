#include "drivers/cuda/pci_files.h"

#include <cstdio>
#include <fstream>

namespace xpud::drivers::cuda {
namespace {

constexpr int kMaxLanes = 32;

// A generation of PCI Express: its rate as the kernel writes it, and what a lane carries in a second, with
// 8 of 10, later 128 of 130, and since generation 6 242 of 256 bits for data (PCI Express base
// specification).
struct Generation {
  double gigatransfers;
  int number;
  int64_t lane_bytes;
};
constexpr Generation kGenerations[] = {
    {2.5, 1, 250'000'000},  {5, 2, 500'000'000},    {8, 3, 984'615'384},
    {16, 4, 1'969'230'769}, {32, 5, 3'938'461'538}, {64, 6, 7'562'500'000},
};

}  // namespace

std::string SysfsFolder(const ze_pci_address_ext_t& address) {
  char folder[80];
  std::snprintf(folder, sizeof(folder), "/sys/bus/pci/devices/%04x:%02x:%02x.%x", address.domain, address.bus,
                address.device, address.function);
  return folder;
}

uint32_t ReadPciDeviceId(const std::string& folder) {
  std::ifstream file(folder + "/device");
  uint32_t id = 0;
  file >> std::hex >> id;
  return id;
}

ze_pci_speed_ext_t ReadPciSpeed(const std::string& folder) {
  ze_pci_speed_ext_t speed = {-1, -1, -1};
  double gigatransfers = 0;  // "32.0 GT/s PCIe"
  std::ifstream(folder + "/max_link_speed") >> gigatransfers;
  int lanes = 0;
  std::ifstream(folder + "/max_link_width") >> lanes;
  if (lanes > 0 && lanes <= kMaxLanes) speed.width = lanes;
  for (const Generation& each : kGenerations) {
    if (each.gigatransfers != gigatransfers) continue;
    speed.genVersion = each.number;
    if (speed.width != -1) speed.maxBandwidth = each.lane_bytes * speed.width;
  }
  return speed;
}

}  // namespace xpud::drivers::cuda
