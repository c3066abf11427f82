#include "proto/base/pci_address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace xpud {
namespace {

constexpr std::string_view kForm = "xxxx:xx:xx.x";  // x: a hexadecimal digit

uint32_t Hexadecimal(std::string_view digits) {
  uint32_t value = 0;
  return absl::SimpleHexAtoi(absl::string_view(digits.data(), digits.size()), &value) ? value : 0;
}

}  // namespace

PciAddress PciAddress::Parse(std::string_view text) {
  const bool has_form = std::ranges::equal(text, kForm, [](char c, char form) {
    return form == 'x' ? absl::ascii_isxdigit(static_cast<unsigned char>(c)) : c == form;
  });
  if (!has_form) return {};
  return Of(Hexadecimal(text.substr(0, 4)), Hexadecimal(text.substr(5, 2)), Hexadecimal(text.substr(8, 2)),
            Hexadecimal(text.substr(11, 1)));
}

std::string PciAddress::Text() const {
  if (!is_known()) return "";
  return absl::StrFormat("%04x:%02x:%02x.%x", domain(), bus(), device(), function());
}

}  // namespace xpud
