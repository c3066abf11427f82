#include "daemon/gateway/resumable_sessions.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <utility>
#include <vector>

#include "proto/base/check.h"

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

ResumableSessions::ResumableSessions(std::chrono::milliseconds hold)
    : hold_(hold), reaper_([this] { EndThoseForgotten(); }) {}

ResumableSessions::~ResumableSessions() {
  {
    MutexLock lock(mutex_);
    stops_ = true;
    changed_.NotifyAll();
  }
  reaper_.join();
}

std::string ResumableSessions::Add(std::shared_ptr<Session> session, std::function<void()> cut) {
  std::string key = RandomKey();
  MutexLock lock(mutex_);
  entries_[key] = {std::move(session), std::move(cut), std::nullopt};
  return key;
}

absl::StatusOr<std::shared_ptr<ResumableSessions::Session>> ResumableSessions::Resume(
    const std::string& key, const std::string& tenant, std::function<void()> cut) {
  const auto limit = Clock::now() + kCutWait;
  MutexLock lock(mutex_);
  while (true) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.session->tenant != tenant) return Gone();
    Entry& entry = found->second;
    if (entry.end) {
      entry.end.reset();
      entry.cut = std::move(cut);
      spdlog::info("session_resumed tenant=\"{}\"", tenant);
      return entry.session;
    }
    if (Clock::now() > limit)
      return absl::UnavailableError("the session's earlier connection has not ended; try again");
    entry.cut();
    changed_.WaitFor(mutex_, std::chrono::milliseconds(50));
  }
}

void ResumableSessions::Hold(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  spdlog::info("session_held tenant=\"{}\" ms={}", found->second.session->tenant, hold_.count());
  found->second.cut = nullptr;
  found->second.end = Clock::now() + hold_;
  changed_.NotifyAll();
}

void ResumableSessions::Remove(const std::string& key) {
  std::shared_ptr<Session> session;  // destroyed without the lock
  MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  session = std::move(found->second.session);
  entries_.erase(found);
}

void ResumableSessions::EndThoseForgotten() {
  pthread_setname_np(pthread_self(), "xpud-held");
  while (true) {
    std::vector<std::shared_ptr<Session>> forgotten;  // destroyed without the lock
    MutexLock lock(mutex_);
    if (stops_) return;
    auto next = Clock::now() + std::chrono::hours(1);
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      const bool over = entry->second.end && *entry->second.end <= Clock::now();
      if (over) {
        spdlog::info("session_forgotten tenant=\"{}\"", entry->second.session->tenant);
        forgotten.push_back(std::move(entry->second.session));
      } else if (entry->second.end) {
        next = std::min(next, *entry->second.end);
      }
      entry = over ? entries_.erase(entry) : std::next(entry);
    }
    if (forgotten.empty()) changed_.WaitFor(mutex_, next - Clock::now());
  }
}

}  // namespace xpud::remote
