#include "daemon/service/views.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::service {

absl::StatusOr<UniqueFd> Views::Open(uint64_t key, const Tenant& viewer) {
  std::erase_if(ending_, [](Ending& each) {
    if (!each.ended->load()) return false;
    each.thread.join();
    return true;
  });
  const auto is_own = [&](const Tenant& other) {
    return other.claim == viewer.claim && other.uid == viewer.uid;
  };
  const size_t views = open_.size() + ending_.size();
  const auto own = static_cast<size_t>(
      std::ranges::count_if(open_, is_own, [](const auto& each) { return each.second.viewer; }) +
      std::ranges::count_if(ending_, is_own, &Ending::viewer));
  if (views >= kMax || own >= kMaxPerUser) {
    return absl::ResourceExhaustedError(
        absl::StrCat(own, " processes of ", viewer.Text(), " see its sessions, and ", views,
                     " of all users; at most ", kMaxPerUser, " and ", kMax, " may"));
  }
  if (show_ == nullptr) return absl::UnimplementedError("this daemon has no control plane");
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return DescriptorError("socketpair");
  UniqueFd theirs(ends[0]);
  ASSIGN_OR_RETURN(auto view, show_(viewer, UniqueFd(ends[1])));
  open_.emplace(key, Shown{viewer, std::move(view)});
  return theirs;
}

void Views::End(uint64_t key) {
  const auto found = open_.find(key);
  if (found == open_.end()) return;
  const Tenant viewer = found->second.viewer;
  std::shared_ptr<UserView> view = std::move(found->second.view);
  open_.erase(found);
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  auto started = StartThread("xpud-view", [ended, view = std::move(view)]() mutable {
    view.reset();
    ended->store(true);
  });
  if (started.ok())
    ending_.push_back({viewer, ended, *std::move(started)});
  else  // the view was destroyed here
    spdlog::warn("view_ended_without_thread tenant={} reason=\"{}\"", viewer.Text(),
                 std::string(started.status().message()));
}

void Views::EndAll() {
  open_.clear();
  for (Ending& each : ending_) each.thread.join();
  ending_.clear();
}

}  // namespace xpud::service
