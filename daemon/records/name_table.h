// Names of kernels and ranges, by number, so that a record needs no text. Bounded: names beyond have no
// number. One thread; readers share the names.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace xpud::records {

class NameTable {
 public:
  // Returns the number of the name, which may be new; 0 if it is empty, or if with it the names would take
  // more than `most` bytes.
  uint32_t NumberOf(std::string_view name, uint64_t most) {
    if (name.empty()) return 0;
    if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
    const uint64_t bytes = name.size() + kEntryBytes;
    if (bytes_ + bytes > most) return 0;
    bytes_ += bytes;
    const auto number = static_cast<uint32_t>(names_.size());
    names_.push_back(std::make_shared<const std::string>(name));
    numbers_.emplace(*names_.back(), number);
    return number;
  }
  // REQUIRES: a number that NumberOf has returned. 0: an empty name.
  const std::shared_ptr<const std::string>& operator[](uint32_t number) const { return names_[number]; }
  uint64_t bytes() const { return bytes_; }  // that they take
  auto begin() const { return names_.begin(); }
  auto end() const { return names_.end(); }

 private:
  static constexpr uint64_t kEntryBytes = 128;  // what refers to the text

  std::deque<std::shared_ptr<const std::string>> names_ = {std::make_shared<const std::string>()};
  absl::flat_hash_map<std::string_view, uint32_t> numbers_;
  uint64_t bytes_ = 0;
};

}  // namespace xpud::records
