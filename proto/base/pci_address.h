// Where a device is on PCI. A value; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace xpud {

class PciAddress {
 public:
  static constexpr uint32_t kMaxDomain = 0xffff, kMaxBus = 0xff, kMaxDevice = 0x1f, kMaxFunction = 7;

  PciAddress() = default;  // unknown
  // Returns an unknown address if a number is too large, or if all are 0: that is a host bridge, and what a
  // driver that knows no address may say.
  static constexpr PciAddress Of(uint32_t domain, uint32_t bus, uint32_t device, uint32_t function) {
    const bool fits =
        domain <= kMaxDomain && bus <= kMaxBus && device <= kMaxDevice && function <= kMaxFunction;
    return fits ? OfBits(domain << 16 | bus << 8 | device << 3 | function) : PciAddress();
  }
  // Reads "0000:17:00.0", in lower or upper case. Returns an unknown address for any other text.
  static PciAddress Parse(std::string_view text);
  // The form in messages of a fixed size. Each number is an address; 0: unknown.
  static constexpr PciAddress OfBits(uint32_t bits) {
    PciAddress address;
    address.bits_ = bits;
    return address;
  }

  constexpr uint32_t bits() const { return bits_; }
  constexpr bool is_known() const { return bits_ != 0; }
  constexpr uint32_t domain() const { return bits_ >> 16; }
  constexpr uint32_t bus() const { return bits_ >> 8 & kMaxBus; }
  constexpr uint32_t device() const { return bits_ >> 3 & kMaxDevice; }
  constexpr uint32_t function() const { return bits_ & kMaxFunction; }
  // "0000:17:00.0", as the kernel writes it; empty if it is unknown.
  std::string Text() const;

  bool operator==(const PciAddress&) const = default;

 private:
  uint32_t bits_ = 0;
};

}  // namespace xpud
