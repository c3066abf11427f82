#include "daemon/executor/process/recordings.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "daemon/executor/process/messages.h"

namespace xpud::executor::process {
namespace {

constexpr int kSeenBefore = 2;  // a batch is recorded at its third occurrence
constexpr size_t kMaxRecordings = 256;
// A recording that was not used for this many batches can be replaced. Not sooner: a program with more
// batches than there is room for would replace each one before its next use.
constexpr uint64_t kMinUnusedBatches = 4096;

uint64_t HashOf(std::span<const std::byte> bytes) {
  return absl::HashOf(absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

bool Equal(const std::vector<std::byte>& a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), b.size()) == 0;
}

}  // namespace

void Recording::Keep(std::span<const std::byte> batch) {
  messages.assign(batch.begin(), batch.end());
  for (Message message; !batch.empty(); batch = batch.subspan(message.bytes)) {
    std::memcpy(&message, batch.data(), sizeof(message));
    kernels.push_back(message.kernel);
  }
}

Recording* Recordings::Find(std::span<const std::byte> messages) {
  const uint64_t hash = HashOf(messages);
  ++uses_;
  const auto found = recordings_.find(hash);
  if (found != recordings_.end()) {
    if (!Equal(found->second.messages, messages)) return nullptr;
    found->second.used = uses_;
    return &found->second;
  }
  Occurrence& occurrence = OccurrenceOf(hash);
  if (occurrence.hash != hash) occurrence = {hash, 0};
  if (occurrence.count < kSeenBefore) {
    ++occurrence.count;
    return nullptr;
  }
  if (recordings_.size() == kMaxRecordings && !MakeRoom()) return nullptr;
  Recording& recording = recordings_[hash];
  recording.queue = reinterpret_cast<const Message*>(messages.data())->queue;
  recording.used = uses_;
  return &recording;
}

bool Recordings::MakeRoom() {
  const auto oldest =
      std::min_element(recordings_.begin(), recordings_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  if (uses_ - oldest->second.used < kMinUnusedBatches) return false;
  recordings_.erase(oldest);
  return true;
}

void Recordings::Refuse(std::span<const std::byte> messages) {
  const uint64_t hash = HashOf(messages);
  recordings_.erase(hash);
  OccurrenceOf(hash) = {hash, std::numeric_limits<int>::min()};
}

void Recordings::ForgetKernel(uint32_t kernel) {
  absl::erase_if(recordings_, [&](const auto& entry) {
    const std::vector<uint32_t>& kernels = entry.second.kernels;
    return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
  });
}

void Recordings::Forget(uint32_t queue) {
  absl::erase_if(recordings_, [&](const auto& entry) { return entry.second.queue == queue; });
}

}  // namespace xpud::executor::process
