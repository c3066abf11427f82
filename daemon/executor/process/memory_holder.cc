#include "daemon/executor/process/memory_holder.h"

#include <memory>

#include "proto/base/status_macros.h"

namespace xpud::executor::process {

using Part = MemoryMap::Part;

MemoryHolder::MemoryHolder(MemoryMap& map, SharedExecutor& executors, Clients clients)
    : map_(map), executors_(executors), clients_(clients) {
  map_.AddHolder(*this);
}

MemoryHolder::~MemoryHolder() { map_.RemoveHolder(*this); }

absl::Status MemoryHolder::Adopt(Process next, const MemoryMap::Parts& had) {
  const auto has = [](const MemoryMap::Parts& parts, uint64_t address, const Part& part) {
    const auto found = parts.find(address);
    return found != parts.end() && found->second == part;
  };
  // A chunk that left or returned meanwhile keeps its addresses.
  const auto exchanges = [&](uint64_t address, const Part& part) {
    const auto now = map_.parts().find(address);
    return now != map_.parts().end() && part.kind == Part::Kind::kChunk && now->second.kind == part.kind &&
           now->second.bytes == part.bytes;
  };
  for (const auto& [address, part] : had) {
    if (!exchanges(address, part) && !has(map_.parts(), address, part))
      MemoryMap::TakeBack(*next, address, part);
  }
  for (const auto& [address, part] : map_.parts()) {
    if (part.kind == Part::Kind::kClient || has(had, address, part)) continue;
    RETURN_IF_ERROR(MemoryMap::Give(*next, address, part));
  }
  executor_ = std::move(next);
  missing_.clear();
  for (const auto& [address, part] : map_.parts()) {
    if (part.kind == Part::Kind::kClient && Expects(part.owner)) GiveLater(address, part);
  }
  return absl::OkStatus();
}

void MemoryHolder::Expect(uint64_t owner) {
  if (clients_ == Clients::kAll || !expected_.insert(owner).second || executor_ == nullptr) return;
  for (const auto& [address, part] : map_.parts()) {
    if (part.kind == Part::Kind::kClient && part.owner == owner) GiveLater(address, part);
  }
}

void MemoryHolder::ForgetEnded(absl::FunctionRef<bool(uint64_t)> lives) {
  std::erase_if(expected_, [&](uint64_t owner) { return !lives(owner); });
  std::erase_if(missing_, [&](const auto& missing) { return !lives(missing.first); });
}

// Importing clients' memory may take long. Meanwhile only the owner's queues are held back.
void MemoryHolder::GiveLater(uint64_t address, const Part& part) {
  ++missing_[part.owner];
  const auto given = std::make_shared<absl::Status>();
  map_.RunLater(
      [process = executor_, address, part, given] { *given = MemoryMap::Give(*process, address, part); },
      [this, process = executor_, owner = part.owner, given] {
        if (process == executor_) NoteGiven(owner, *given);  // otherwise the next executor gets it
      });
}

void MemoryHolder::NoteGiven(uint64_t owner, const absl::Status& status) {
  const auto found = missing_.find(owner);
  if (found == missing_.end() || absl::IsUnavailable(status))
    return;  // the session is blamed, or the executor is lost
  if (status.ok() && --found->second != 0) return;
  if (status.ok() || clients_ == Clients::kAll) missing_.erase(found);
  given_.emplace_back(owner, status);
}

std::vector<std::pair<uint64_t, absl::Status>> MemoryHolder::TakeGiven() {
  map_.FinishLater();
  return std::exchange(given_, {});
}

}  // namespace xpud::executor::process
