#include "deploy/agent/kubernetes/tombstones.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "deploy/agent/core/files.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr size_t kMaxFile = 4 << 20;
constexpr size_t kMaxPods = 64;  // of one entry; with more, all count as not known

int64_t NowSeconds() { return time(nullptr); }

// A clock that was set back makes an entry of the future, which counts as old.
bool IsOld(int64_t time_s, int64_t now_s) {
  return time_s > now_s + 1 || now_s - time_s > Tombstones::kLifetime.count();
}

}  // namespace

// A line: UID SECONDS PODUID,PODUID...
std::unique_ptr<Tombstones> Tombstones::Open(std::string path) {
  std::unique_ptr<Tombstones> stones(new Tombstones(std::move(path)));
  const auto content = ReadSmallFile(stones->path_, kMaxFile);
  if (!content.ok()) {
    if (!absl::IsNotFound(content.status()))
      spdlog::warn("tombstones_unreadable reason=\"{}\"", std::string(content.status().message()));
    return stones;
  }
  const MutexLock lock(stones->mutex_);
  for (const absl::string_view line : absl::StrSplit(*content, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    Stone stone;
    if (words.size() != 3 || words[0].empty() || !absl::SimpleAtoi(words[1], &stone.time_s)) continue;
    stone.pods = absl::StrSplit(words[2], ',', absl::SkipEmpty());
    if (stones->stones_.size() < kMax) stones->stones_.insert_or_assign(words[0], std::move(stone));
  }
  stones->RemoveOld();
  return stones;
}

void Tombstones::RemoveOld() {
  const int64_t now = NowSeconds();
  std::erase_if(stones_, [&](const auto& entry) { return IsOld(entry.second.time_s, now); });
  while (stones_.size() >= kMax) {
    stones_.erase(
        std::ranges::min_element(stones_, {}, [](const auto& entry) { return entry.second.time_s; }));
  }
}

absl::Status Tombstones::Write() const {
  std::string content;
  for (const auto& [uid, stone] : stones_)
    absl::StrAppend(&content, uid, " ", stone.time_s, " ", absl::StrJoin(stone.pods, ","), "\n");
  return ReplaceFile(path_, content);
}

absl::Status Tombstones::Add(const std::string& uid, const std::set<std::string>& pods) {
  const MutexLock lock(mutex_);
  RemoveOld();
  stones_[uid] = {NowSeconds(), pods.size() > kMaxPods ? std::set<std::string>() : pods};
  return Write();
}

bool Tombstones::IsLate(const std::string& uid, const std::set<std::string>& pods) const {
  const MutexLock lock(mutex_);
  const auto found = stones_.find(uid);
  if (found == stones_.end() || IsOld(found->second.time_s, NowSeconds())) return false;
  return found->second.pods.empty() || std::ranges::includes(found->second.pods, pods);
}

absl::Status Tombstones::Remove(const std::string& uid) {
  const MutexLock lock(mutex_);
  if (stones_.erase(uid) == 0) return absl::OkStatus();
  RemoveOld();
  return Write();
}

}  // namespace xpud::agent::kubernetes
