// The lanes of all devices, by the device's number. Thread-safe; constant after construction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/lane/lane.h"
#include "daemon/session/registry.h"

namespace xpud::lane {

class Lanes {
 public:
  struct Options {
    // Makes the policy of each lane. REQUIRES: not null.
    std::function<std::unique_ptr<scheduler::Policy>(const scheduler::Policy::Traits&)> policy = nullptr;
    uint64_t slice_ns = 100'000;
    uint64_t stall_ns = 0;  // as Lane::Options
    std::function<TimeGrant(const Tenant&)> grant_of = [](const Tenant&) { return TimeGrant{}; };  // likewise
    std::function<void(uint32_t device, const records::EndedSession& session)> on_crash =
        [](uint32_t, const records::EndedSession&) {};  // as Lane::Options
    // Called, on any lane's thread, when a session was closed that its client has not left: its socket must
    // be shut.
    std::function<void(uint64_t session)> on_close = [](uint64_t) {};
  };

  // `registry` must outlive the lanes.
  static absl::StatusOr<std::unique_ptr<Lanes>> Create(std::vector<stream::DeviceState> devices,
                                                       session::Registry& registry, Options options);

  // Ends all lanes before any of them is destroyed, since they call each other.
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  size_t size() const { return lanes_.size(); }
  Lane& operator[](uint32_t device) const { return *lanes_[device]; }
  session::Registry& registry() const { return registry_; }

  // As Session::SetNice, on all devices. Thread-safe.
  absl::StatusOr<uint32_t> SetNice(const std::shared_ptr<session::Session>& session, uint32_t nice,
                                   bool may_raise) const;
  // Closes a session on all devices.
  void Close(session::Session& session, const std::string& reason, bool fault = false) const;
  // Like Close, for a session whose client has not left.
  void Evict(session::Session& session, const std::string& reason, bool fault = false) const;
  // Runs `task` on each lane's thread, one after the other, and waits. REQUIRES: none of these threads.
  void CallEach(absl::FunctionRef<void(Lane&)> task) const;
  // Likewise for readers; see Lane::Visit.
  void VisitEach(absl::FunctionRef<void(Lane&)> task) const;
  // Calls visit(lane, session) for the sessions on each device, at most `most` in one visit. REQUIRES: none
  // of these threads.
  void VisitSessions(size_t most, absl::FunctionRef<void(Lane&, const session::DeviceSession&)> visit) const;
  // As ProfileDesk::Settle, on all lanes; waits until all have. REQUIRES: none of these threads.
  void SettleProfiles() const;
  // Has each lane run an empty task, one after the other. Then calls `done` on the last one's thread.
  void Ping(std::function<void()> done) const { PingFrom(0, std::move(done)); }
  void WakeAll() const;

 private:
  Lanes(session::Registry& registry, Options options) : registry_(registry), options_(std::move(options)) {}
  void PingFrom(size_t first, std::function<void()> done) const;

  session::Registry& registry_;
  const Options options_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace xpud::lane
