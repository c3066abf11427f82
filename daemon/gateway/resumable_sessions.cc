#include "daemon/gateway/resumable_sessions.h"

#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <utility>
#include <vector>

#include "proto/base/check.h"
#include "proto/base/start_thread.h"

namespace xpud::remote {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr std::chrono::seconds kCutWait{5};

std::string RandomKey() {
  std::string key(kKeyBytes, '\0');
  XPUD_CHECK(getrandom(key.data(), key.size(), 0) == static_cast<ssize_t>(key.size()));
  return key;
}

absl::Status Gone() { return absl::NotFoundError("the session is no longer held; its memory is lost"); }

}  // namespace

ResumableSessions::ResumableSessions(std::chrono::milliseconds hold) : hold_(hold) {
  auto started = StartThread("xpud-held", [this] { EndExpired(); });
  status_ = started.status();
  if (started.ok()) reaper_ = *std::move(started);
}

ResumableSessions::~ResumableSessions() {
  {
    MutexLock lock(mutex_);
    stops_ = true;
    changed_.NotifyAll();
  }
  if (reaper_.joinable()) reaper_.join();
}

std::string ResumableSessions::Add(std::shared_ptr<RemoteSession> session, Cut cut) {
  std::string key = RandomKey();
  MutexLock lock(mutex_);
  Entry& entry = entries_[key];
  entry.session = std::move(session);
  entry.streams[0] = std::move(cut);
  return key;
}

absl::StatusOr<std::shared_ptr<RemoteSession>> ResumableSessions::Find(const std::string& key,
                                                                       const std::string& tenant) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.session->tenant() != tenant) return Gone();
  return found->second.session;
}

absl::StatusOr<std::shared_ptr<RemoteSession>> ResumableSessions::Attach(const std::string& key,
                                                                         const std::string& tenant,
                                                                         uint32_t device, Cut cut) {
  const auto limit = Clock::now() + kCutWait;
  MutexLock lock(mutex_);
  while (true) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.session->tenant() != tenant) return Gone();
    Entry& entry = found->second;
    const auto [earlier, added] = entry.streams.try_emplace(device, cut);
    if (added) {
      if (entry.end) spdlog::info("session_resumed tenant=\"{}\"", tenant);
      entry.end.reset();
      return entry.session;
    }
    if (Clock::now() > limit)
      return absl::UnavailableError("the session's earlier connection has not ended; try again");
    earlier->second();
    changed_.WaitFor(mutex_, std::chrono::milliseconds(50));
  }
}

void ResumableSessions::Detach(const std::string& key, uint32_t device) {
  std::shared_ptr<RemoteSession> session;  // destroyed without the lock
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  entry.streams.erase(device);
  changed_.NotifyAll();
  if (!entry.session->resumable()) {
    for (const auto& [other, cut] : entry.streams) cut();
    session = std::move(entry.session);
    entries_.erase(found);
  } else if (entry.streams.empty()) {
    spdlog::info("session_held tenant=\"{}\" ms={}", entry.session->tenant(), hold_.count());
    entry.end = Clock::now() + hold_;
  }
}

void ResumableSessions::Remove(const std::string& key, uint32_t device) {
  std::shared_ptr<RemoteSession> session;  // destroyed without the lock
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  for (const auto& [other, cut] : found->second.streams) {
    if (other != device) cut();
  }
  session = std::move(found->second.session);
  entries_.erase(found);
}

void ResumableSessions::EndExpired() {
  while (true) {
    std::vector<std::shared_ptr<RemoteSession>> expired;  // destroyed without the lock
    MutexLock lock(mutex_);
    if (stops_) return;
    auto next = Clock::now() + std::chrono::hours(1);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const bool over = entry->second.end && *entry->second.end <= Clock::now();
      if (over) {
        spdlog::info("session_forgotten tenant=\"{}\"", entry->second.session->tenant());
        expired.push_back(std::move(entry->second.session));
      } else if (entry->second.end) {
        next = std::min(next, *entry->second.end);
      }
      entry = over ? entries_.erase(entry) : std::next(entry);
    }
    if (expired.empty()) changed_.WaitFor(mutex_, next - Clock::now());
  }
}

}  // namespace xpud::remote
