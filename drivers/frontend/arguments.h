// Argument values of a kernel, or of one launch: an array of pointers, as launches need it. Values start on
// cache lines of their own. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace xpud::drivers {

class Arguments {
 public:
  explicit Arguments(const std::vector<uint32_t>& sizes);
  // Copies sizes[i] bytes from values[i].
  Arguments(const std::vector<uint32_t>& sizes, const void* const* values);

  // REQUIRES: `size` is the argument's size. A null value means zeroes.
  void Set(size_t index, const void* value, size_t size);
  const void* const* pointers() const { return pointers_.data(); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::unique_ptr<Line[]> values_;
  std::vector<const void*> pointers_;
};

}  // namespace xpud::drivers
