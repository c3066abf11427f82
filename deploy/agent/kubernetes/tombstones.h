// Which claims were unprepared lately, kept in a small file. A call to prepare may arrive after the call to
// unprepare that followed it, and must not bring the claim back. The kubelet gives a call 45 s, so an entry
// counts for twice that. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "proto/base/mutex.h"

namespace xpud::agent::kubernetes {

class Tombstones {
 public:
  static constexpr std::chrono::seconds kLifetime{90};
  static constexpr size_t kMax = 4096;  // entries; the oldest go first

  // Reads the file, if there is one. Lines that are not as this class writes them are left out.
  static std::unique_ptr<Tombstones> Open(std::string path);

  // The claim `uid` was unprepared; `pods`: the uids of those that had it, none if they are not known. Kept
  // in the file when this returns OK.
  absl::Status Add(const std::string& uid, const std::set<std::string>& pods);
  // Whether a call to prepare the claim for these pods is a late one: it was unprepared, and none of the pods
  // came later.
  bool IsLate(const std::string& uid, const std::set<std::string>& pods) const;
  // Whether the claim was unprepared lately.
  bool Contains(const std::string& uid) const { return IsLate(uid, {}); }
  // A later pod has the claim.
  absl::Status Remove(const std::string& uid);

 private:
  struct Stone {
    int64_t time_s = 0;  // Unix time: entries count after a restart of the agent, too
    std::set<std::string> pods;
  };

  explicit Tombstones(std::string path) : path_(std::move(path)) {}
  void RemoveOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  mutable Mutex mutex_;
  std::map<std::string, Stone> stones_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace xpud::agent::kubernetes
