#include "daemon/executor/process/command_log.h"

#include <algorithm>

namespace xpud::executor::process {
namespace {

constexpr size_t kMinWaste = 64 << 10;  // unused bytes at the front before the rest is moved down

template <typename T>
void Drop(std::vector<T>& from, size_t& begin, size_t count) {
  begin += count;
  if (begin == from.size()) {
    from.clear();
    begin = 0;
  } else if (begin * sizeof(T) > kMinWaste && begin > from.size() / 2) {
    from.erase(from.begin(), from.begin() + static_cast<ptrdiff_t>(begin));
    begin = 0;
  }
}

// Memory whose contents differ from what the commands that run again expect.
class SpoiltMemory {
 public:
  static constexpr size_t kLost = SIZE_MAX;  // written by a command that reads spoilt memory

  void Add(const MemoryUse& use, size_t writer) {
    if (use.bytes != 0) parts_.push_back({use.address, use.address + use.bytes, writer});
  }
  bool Holds(const MemoryUse& use) const {
    return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
      return part.begin < use.address + use.bytes && use.address < part.end;
    });
  }
  // `writer` runs again and reads nothing spoilt, so its results are correct.
  void Restore(size_t writer, const MemoryUse& use) {
    std::erase_if(parts_, [&](const Part& part) { return part.writer == writer; });
    if (use.kind == MemoryUse::Kind::kWrite) Cut(use.address, use.address + use.bytes);
  }
  std::vector<MemoryRange> Ranges() const {
    std::vector<MemoryRange> ranges;
    for (const Part& part : parts_) ranges.push_back({part.begin, part.end - part.begin});
    return ranges;
  }

 private:
  struct Part {
    uint64_t begin, end;
    size_t writer;
  };
  void Cut(uint64_t begin, uint64_t end) {
    std::vector<Part> right;
    for (Part& part : parts_) {
      if (part.begin >= end || begin >= part.end) continue;
      if (part.end > end) right.push_back({end, part.end, part.writer});
      part.end = std::max(part.begin, std::min(part.end, begin));
    }
    std::erase_if(parts_, [](const Part& part) { return part.begin == part.end; });
    parts_.insert(parts_.end(), right.begin(), right.end());
  }

  std::vector<Part> parts_;
};

}  // namespace

void CommandLog::Append(std::span<const std::byte> messages, std::span<const MemoryUse> uses, uint64_t mark) {
  commands_.push_back(
      {kNotSent, mark, static_cast<uint32_t>(messages.size()), static_cast<uint32_t>(uses.size())});
  bytes_.insert(bytes_.end(), messages.begin(), messages.end());
  uses_.insert(uses_.end(), uses.begin(), uses.end());
}

void CommandLog::Complete(uint64_t value, absl::FunctionRef<void(std::span<const std::byte>)> visit) {
  size_t count = 0;
  for (size_t i = 0; i < size(); ++i) {
    const uint64_t mark = (*this)[i].mark;
    if (mark > value) break;
    if (mark != 0) count = i + 1;
  }
  for (; count != 0; --count) {
    const Command command = (*this)[0];
    visit({bytes_.data() + bytes_begin_, command.bytes});
    Drop(bytes_, bytes_begin_, command.bytes);
    Drop(uses_, uses_begin_, command.uses);
    Drop(commands_, commands_begin_, 1);
  }
}

void CommandLog::ForEachFrom(size_t i, absl::FunctionRef<bool(Command&, std::span<const std::byte>)> visit) {
  size_t at = bytes_.size();
  for (size_t k = size(); k > i; --k) at -= (*this)[k - 1].bytes;
  for (; i < size(); ++i) {
    Command& command = (*this)[i];
    if (!visit(command, {bytes_.data() + at, command.bytes})) return;
    at += command.bytes;
  }
}

void CommandLog::AddWritten(std::vector<MemoryRange>& ranges) const {
  for (size_t i = uses_begin_; i < uses_.size(); ++i)
    if (uses_[i].kind != MemoryUse::Kind::kRead) ranges.emplace_back(uses_[i].address, uses_[i].bytes);
}

CommandLog::Damage CommandLog::Rewind(uint64_t taken) {
  Damage damage;
  SpoiltMemory spoilt;
  std::vector<std::span<const MemoryUse>> uses;
  size_t at = uses_begin_;
  bool reached = true;  // may have been reached
  for (size_t i = 0; i < size(); ++i) {
    Command& command = (*this)[i];
    uses.push_back({uses_.data() + at, command.uses});
    at += command.uses;
    const bool started = reached && command.position <= taken;
    reached &= command.mark == 0;
    command.position = kNotSent;
    if (!started) continue;
    damage.started = i + 1;  // commands run in order, so earlier ones had started too
    for (const MemoryUse& use : uses[i]) {
      if (use.kind != MemoryUse::Kind::kRead) spoilt.Add(use, i);
    }
  }
  for (size_t i = 0; i < size(); ++i) {
    const bool right = std::none_of(uses[i].begin(), uses[i].end(), [&](const MemoryUse& use) {
      return use.kind == MemoryUse::Kind::kRead && spoilt.Holds(use);
    });
    for (const MemoryUse& use : uses[i]) {
      if (use.kind == MemoryUse::Kind::kRead) continue;
      right ? spoilt.Restore(i, use) : spoilt.Add(use, SpoiltMemory::kLost);
    }
  }
  damage.spoilt = spoilt.Ranges();
  return damage;
}

}  // namespace xpud::executor::process
