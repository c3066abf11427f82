// Keeps the ResourceSlice of this node on the API server as the inventory says: a thread of its own creates
// it, replaces it, watches it, and mends it if it is deleted or changed by others. It deletes nothing when it
// ends, so that an upgrade of the agent ends no pod. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "deploy/agent/core/conditions.h"
#include "deploy/agent/core/counters.h"
#include "deploy/agent/core/inventory.h"
#include "deploy/agent/kubernetes/api_server.h"
#include "deploy/agent/kubernetes/interrupt.h"
#include "deploy/agent/kubernetes/resource_slice.h"
#include "proto/base/mutex.h"

namespace xpud::agent::kubernetes {

class SlicePublisher {
 public:
  // Starts the thread, which does nothing before the first Publish. All references must outlive the
  // publisher; the condition "resource-slice" says whether the server has the slice. Returns InvalidArgument
  // if `node` can be no node's name, and ResourceExhausted if no thread can be started.
  static absl::StatusOr<std::unique_ptr<SlicePublisher>> Start(ApiServer& server, std::string node,
                                                               Counters& counters, Conditions& conditions);
  // Ends within the time of a request; a watch ends at once.
  ~SlicePublisher();

  // What the slice is to say from now on. Does not wait.
  void Publish(const Inventory& inventory);

 private:
  SlicePublisher(ApiServer& server, std::string node, Counters& counters, Conditions& conditions,
                 Interrupt interrupt);

  void Run();
  // Returns why the slice can no longer be kept; until then, keeps it.
  absl::Status Follow();
  // Reads the slice and its version.
  absl::Status Look();
  // Writes the slice if it is not as wanted.
  absl::Status Mend();
  void CountCorrection();
  absl::Status Write(const Json& devices);
  absl::Status CheckWritten() const;
  // Takes an event over. Returns false if the slice has to be looked at.
  bool Observe(const Json& event);
  absl::Status Watch();
  bool IsReplaceable() const;
  void Adopt(Json slice);

  bool Stopping() const;
  // Returns nullopt if there is no need to go on.
  std::optional<Inventory> Wanted();
  void WaitFor(std::chrono::milliseconds delay);

  ApiServer& server_;
  const std::string node_;
  const std::string name_;
  Counters& counters_;
  Conditions& conditions_;
  const Interrupt interrupt_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Inventory> wanted_ ABSL_GUARDED_BY(mutex_);

  // The thread's own.
  Json current_;            // the server's object; null: there is none
  std::string version_;     // from which to watch
  Json written_;            // the devices that were written last, as sent
  Json stored_;             // the spec that the server made of them; may differ, for it drops and normalizes
  int64_t generation_ = 0;  // the last that was seen
  TaintTimes times_;
  int failures_ = 0;  // since the slice was last kept
  std::chrono::steady_clock::time_point corrected_;
  std::thread thread_;
};

}  // namespace xpud::agent::kubernetes
