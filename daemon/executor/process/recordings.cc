#include "daemon/executor/process/recordings.h"

#include <algorithm>
#include <cstring>

#include "daemon/executor/process/messages.h"

namespace xpud::executor::process {
namespace {

constexpr uint32_t kSeenBefore = 2;   // what comes for the third time is recorded
constexpr size_t kMostOfAFamily = 4;  // programs often use two or three sets of buffers in turn
constexpr size_t kMostRecordings = 128;
constexpr size_t kMostFamilies = 4096;

bool UsedEarlier(const std::unique_ptr<Recording>& a, const std::unique_ptr<Recording>& b) {
  return a->used < b->used;
}

}  // namespace

bool Recording::Holds(std::span<const std::byte> batch) const {
  return messages.size() == batch.size() && std::memcmp(messages.data(), batch.data(), batch.size()) == 0;
}

Recording* Recordings::Find(const LaunchBatch& batch, std::span<const std::byte> messages) {
  if (families_.size() >= kMostFamilies)
    absl::erase_if(families_, [](const auto& entry) { return entry.second.recordings.empty(); });
  Family& family = families_[batch.structure];
  if (family.refused) return nullptr;
  for (const auto& recording : family.recordings) {
    if (!recording->Holds(messages)) continue;
    recording->used = ++uses_;
    return recording.get();
  }
  if (family.seen < kSeenBefore) {
    ++family.seen;
    return nullptr;
  }
  Recording* const recording =
      family.recordings.size() < kMostOfAFamily
          ? Add(family)
          : std::min_element(family.recordings.begin(), family.recordings.end(), UsedEarlier)->get();
  recording->queue = reinterpret_cast<const Message*>(messages.data())->queue;
  recording->used = ++uses_;
  return recording;
}

Recording* Recordings::Add(Family& family) {
  if (size_ == kMostRecordings) MakeRoom();
  ++size_;
  return family.recordings.emplace_back(std::make_unique<Recording>()).get();
}

void Recordings::MakeRoom() {
  Family* oldest = nullptr;
  uint64_t used = UINT64_MAX;
  for (auto& [structure, family] : families_) {
    for (const auto& recording : family.recordings) {
      if (recording->used >= used) continue;
      used = recording->used;
      oldest = &family;
    }
  }
  size_ -= std::erase_if(oldest->recordings, [&](const auto& recording) { return recording->used == used; });
}

void Recordings::Refuse(const LaunchBatch& batch) {
  Family& family = families_[batch.structure];
  size_ -= family.recordings.size();
  family = {0, true, {}};
}

void Recordings::Forget(uint32_t queue) {
  for (auto& [structure, family] : families_)
    size_ -=
        std::erase_if(family.recordings, [&](const auto& recording) { return recording->queue == queue; });
}

}  // namespace xpud::executor::process
