// The views of their own sessions that users have: few in all and for each user, those that are ending
// included. Owned by Listener. REQUIRES: the listener's thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/service/user_view.h"
#include "daemon/tenant/tenant.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {

class Views {
 public:
  static constexpr size_t kMax = 32, kMaxPerUser = 4;

  // Shows a user its own sessions on a stream socket. Null: the daemon has no control plane.
  using Show = std::function<absl::StatusOr<std::unique_ptr<UserView>>(const Tenant&, UniqueFd)>;

  explicit Views(Show show) : show_(std::move(show)) {}
  ~Views() { EndAll(); }
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  // Opens a view for the connection `key`. Returns the user's end of its socket.
  absl::StatusOr<UniqueFd> Open(uint64_t key, const Tenant& viewer);
  bool Has(uint64_t key) const { return open_.contains(key); }
  // Ends the connection's view, if it has one, on another thread: that waits for calls in progress.
  void End(uint64_t key);
  // Ends all views, and waits for their ends.
  void EndAll();

 private:
  struct Shown {
    Tenant viewer;
    std::unique_ptr<UserView> view;
  };
  struct Ending {
    Tenant viewer;
    std::shared_ptr<std::atomic<bool>> ended;
    std::thread thread;
  };

  const Show show_;
  std::map<uint64_t, Shown> open_;  // by the connection's key
  std::vector<Ending> ending_;
};

}  // namespace xpud::service
