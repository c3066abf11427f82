#include "daemon/lane/lanes.h"

#include <algorithm>
#include <cstddef>
#include <latch>
#include <utility>

#include "proto/base/status_macros.h"

namespace xpud::lane {

absl::StatusOr<std::unique_ptr<Lanes>> Lanes::Create(std::vector<stream::DeviceState> devices,
                                                     session::Registry& registry, Options options) {
  std::unique_ptr<Lanes> lanes(new Lanes(registry, std::move(options)));
  for (stream::DeviceState& device : devices) {
    const Options& common = lanes->options_;
    Lane::Options of_lane = {
        .policy = common.policy(
            {.slice_ns = common.slice_ns, .synchronous = device.device->properties().synchronous}),
        .stall_ns = common.stall_ns,
        .grant_of = common.grant_of,
        .on_fault =
            [raw = lanes.get()](uint64_t id, const std::string& reason) {
              if (const auto session = raw->registry_.Find(id)) raw->Evict(*session, reason, /*fault=*/true);
            },
        .on_crash = common.on_crash};
    ASSIGN_OR_RETURN(auto lane, Lane::Create(std::move(device), static_cast<uint32_t>(lanes->size()),
                                             registry, std::move(of_lane)));
    lanes->lanes_.push_back(std::move(lane));
  }
  return lanes;
}

Lanes::~Lanes() {
  for (const auto& lane : lanes_) lane->Stop();
}

absl::StatusOr<uint32_t> Lanes::SetNice(const std::shared_ptr<session::Session>& session, uint32_t nice,
                                        bool may_raise) const {
  ASSIGN_OR_RETURN(const uint32_t before, session->SetNice(nice, may_raise));
  for (const auto& lane : lanes_) lane->Post([&lane = *lane, session] { lane.NiceChanged(*session); });
  return before;
}

void Lanes::Close(session::Session& session, const std::string& reason, bool fault) const {
  registry_.Close(session, reason, fault);
  for (const auto& lane : lanes_)
    lane->Post([&lane = *lane, id = session.id(), reason] { lane.Close(id, reason); });
}

void Lanes::Evict(session::Session& session, const std::string& reason, bool fault) const {
  Close(session, reason, fault);
  // After the lanes have closed it: a client whose socket is shut before takes the daemon for dead.
  Ping([this, id = session.id()] { options_.on_close(id); });
}

void Lanes::CallEach(absl::FunctionRef<void(Lane&)> task) const {
  for (const auto& lane : lanes_) lane->Call([&] { task(*lane); });
}

void Lanes::VisitEach(absl::FunctionRef<void(Lane&)> task) const {
  for (const auto& lane : lanes_) lane->Visit([&] { task(*lane); });
}

void Lanes::VisitSessions(size_t most,
                          absl::FunctionRef<void(Lane&, const session::DeviceSession&)> visit) const {
  for (const auto& lane : lanes_) {
    std::vector<uint64_t> ids;
    lane->Visit(
        [&] { lane->ForEach([&](const session::DeviceSession& each) { ids.push_back(each.id()); }); });
    for (size_t first = 0; first < ids.size(); first += most) {
      lane->Visit([&] {
        for (size_t i = first; i < std::min(first + most, ids.size()); ++i)
          if (const session::DeviceSession* const session = lane->Find(ids[i])) visit(*lane, *session);
      });
    }
  }
}

void Lanes::SettleProfiles() const {
  std::latch settled(static_cast<ptrdiff_t>(lanes_.size()));
  for (const auto& lane : lanes_)
    lane->Post([&settled, &lane = *lane] { lane.profiles().Settle([&settled] { settled.count_down(); }); });
  settled.wait();
}

void Lanes::PingFrom(size_t first, std::function<void()> done) const {
  if (first == lanes_.size()) return done();
  lanes_[first]->Post(
      [this, first, done = std::move(done)]() mutable { PingFrom(first + 1, std::move(done)); });
}

void Lanes::WakeAll() const {
  for (const auto& lane : lanes_) lane->Wake();
}

}  // namespace xpud::lane
