// Waits for the ends of the processes that have grants, on a thread of its own. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/agent/grants/process.h"
#include "proto/base/mutex.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent {

class ProcessWatch {
 public:
  // `ended` is called on the watch's thread with each key of a process that has ended, once. It must not
  // block, and may call the watch.
  static absl::StatusOr<std::unique_ptr<ProcessWatch>> Start(
      std::function<void(const std::string& key)> ended);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Watches a process for a key, instead of the one that the key had. `process`: its pidfd; the watch keeps
  // one for each process, whatever the number of its keys. FailedPrecondition: the process has ended, as was
  // reported for another key.
  absl::Status Add(const std::string& key, const ProcessName& name, const UniqueFd& process);
  void Remove(const std::string& key);
  bool Has(const std::string& key) const;
  // Whether the process that the key has now has ended.
  bool HasEnded(const std::string& key) const;
  std::vector<std::string> Keys() const;

 private:
  struct Process {
    uint64_t number;  // of its events
    UniqueFd fd;
    bool ended = false;
    std::set<std::string> keys = {};
  };

  ProcessWatch(UniqueFd events, UniqueFd end, std::function<void(const std::string&)> ended)
      : events_(std::move(events)), end_(std::move(end)), ended_(std::move(ended)) {}
  void Run();
  std::vector<std::string> TakeEnd(uint64_t number);
  void Unwatch(Process& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveLocked(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd events_, end_;
  const std::function<void(const std::string&)> ended_;
  mutable Mutex mutex_;
  std::map<ProcessName, Process> processes_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, ProcessName> names_ ABSL_GUARDED_BY(mutex_);  // by key
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;                         // 0 is `end_`
  std::thread thread_;
};

}  // namespace xpud::agent
