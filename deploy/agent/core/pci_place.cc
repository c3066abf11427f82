#include "deploy/agent/core/pci_place.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace xpud::agent {
namespace {

constexpr int kMaxNumaNode = 1023;  // Linux has at most 1024 of them

// Whether it is "pciDDDD:BB". The kernel writes domains beyond 0xffff, of virtual roots, with more digits.
bool IsRoot(std::string_view name) {
  constexpr std::string_view kForm = "pcixxxx:xx";
  return std::ranges::equal(name, kForm, [](char c, char form) {
    return form == 'x' ? absl::ascii_isxdigit(static_cast<unsigned char>(c)) : c == form;
  });
}

}  // namespace

PciPlace ReadPciPlace(const std::string& sysfs, const PciAddress& address) {
  PciPlace place;
  if (!address.is_known()) return place;
  // A link to "/sys/devices/pci0000:64/0000:64:01.0/0000:65:00.0": the way from the root to the device.
  std::error_code error;
  const std::filesystem::path device =
      std::filesystem::canonical(absl::StrCat(sysfs, "/bus/pci/devices/", address.Text()), error);
  if (error) return place;
  for (const std::filesystem::path& part : device) {
    if (!IsRoot(part.native())) continue;
    place.root = part.native();
    break;
  }
  int node = -1;
  std::ifstream(device / "numa_node") >> node;
  if (node >= 0 && node <= kMaxNumaNode) place.numa_node = static_cast<uint32_t>(node);
  return place;
}

}  // namespace xpud::agent
