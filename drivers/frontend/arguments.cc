#include "drivers/frontend/arguments.h"

#include <cstring>

namespace xpud::drivers {

Arguments::Arguments(const std::vector<uint32_t>& sizes) {
  constexpr auto lines_of = [](uint32_t size) { return (size + sizeof(Line) - 1) / sizeof(Line); };
  size_t lines = 0;
  for (const uint32_t size : sizes) lines += lines_of(size);
  values_ = std::make_unique<Line[]>(lines);
  const Line* line = values_.get();
  for (const uint32_t size : sizes) {
    pointers_.push_back(line);
    line += lines_of(size);
  }
}

Arguments::Arguments(const std::vector<uint32_t>& sizes, const void* const* values) : Arguments(sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 0) Set(i, values[i], sizes[i]);
  }
}

void Arguments::Set(size_t index, const void* value, size_t size) {
  void* const target = const_cast<void*>(pointers_[index]);  // points into values_
  if (value == nullptr) {
    std::memset(target, 0, size);
  } else {
    std::memcpy(target, value, size);
  }
}

}  // namespace xpud::drivers
