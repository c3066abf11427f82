// Argument values of a kernel or of one launch of it: a pointer for each, as launches want them. Values start
// on cache lines of their own. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace xpud::drivers {

class Arguments {
 public:
  explicit Arguments(const std::vector<uint32_t>& sizes);
  // Copies: values[i] points at sizes[i] bytes.
  Arguments(const std::vector<uint32_t>& sizes, const void* const* values);

  // `size` must be the argument's. A null value is all zeroes.
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
