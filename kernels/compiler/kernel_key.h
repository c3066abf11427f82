// What selects a kernel. Plain values.
#pragma once

#include <array>
#include <cstdint>

namespace xpud::kernels {

// All that selects a kernel, packed: the skeleton's number in the low 8 bits of the first word, the rest as
// the skeleton likes.
struct KernelKey {
  std::array<uint64_t, 2> words{};
  bool operator==(const KernelKey&) const = default;
};

// Packs fields into a key, low bits first.
class KeyWriter {
 public:
  explicit KeyWriter(uint8_t skeleton) { Put(skeleton, 8); }
  void Put(uint64_t value, int bits);
  const KernelKey& key() const { return key_; }

 private:
  KernelKey key_;
  int at_ = 0;
};

class KeyReader {
 public:
  explicit KeyReader(const KernelKey& key) : key_(key) { Take(8); }
  uint64_t Take(int bits);

 private:
  const KernelKey& key_;
  int at_ = 0;
};

}  // namespace xpud::kernels
