#include "daemon/lane/turns.h"

#include <sys/epoll.h>

#include <array>
#include <utility>
#include <vector>

namespace xpud::lane {

using session::DeviceSession;

void Turns::Add(std::unique_ptr<DeviceSession> session, scheduler::Policy::Account& account) {
  const uint64_t id = session->id();
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = id;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, session->transport().doorbell(), &event);
  awake_.push_back({std::move(session), &account});
  by_id_.emplace(id, std::prev(awake_.end()));
}

std::unique_ptr<DeviceSession> Turns::Remove(uint64_t id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return nullptr;
  const auto turn = found->second;
  by_id_.erase(found);
  policy_.Remove(*turn->account);
  std::unique_ptr<DeviceSession> session = std::move(turn->session);
  // Closing our descriptor would not do: the client has another one of the same eventfd, and may signal it.
  epoll_ctl(epoll_, EPOLL_CTL_DEL, session->transport().doorbell(), nullptr);
  (turn->asleep ? asleep_ : awake_).erase(turn);
  return session;
}

void Turns::RestIdle(uint64_t now_ns) {
  if (awake_.size() <= kKeptAwake || now_ns - rested_ns_ < kRestPeriodNs) return;
  rested_ns_ = now_ns;
  std::vector<std::list<Turn>::iterator> idle;
  for (auto turn = awake_.begin(); turn != awake_.end() && awake_.size() - idle.size() > kKeptAwake; ++turn) {
    if (turn->idle_since_ns != 0 && now_ns - turn->idle_since_ns >= kRestAfterNs) idle.push_back(turn);
  }
  if (idle.empty()) return;
  for (const auto& turn : idle) turn->session->transport().SayAsleep();
  idle.front()->session->transport().BarrierBeforeSleep();
  for (const auto& turn : idle) {
    if (turn->session->HasCommands() || turn->session->under_way()) {
      turn->session->Awake(now_ns);
      continue;
    }
    turn->asleep = true;
    policy_.Rests(*turn->account);
    asleep_.splice(asleep_.end(), awake_, turn);
  }
}

void Turns::WakeRungNow(uint64_t now_ns) {
  looked_ns_ = now_ns;
  std::array<epoll_event, 32> events;
  // Clients may signal on and on, so no more often than there are sessions.
  for (size_t looks = by_id_.size() / events.size() + 1; looks > 0; --looks) {
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[static_cast<size_t>(i)].data.u64;  // a copy: in the event it is not aligned
      if (const auto found = by_id_.find(id); found != by_id_.end()) Wake(found->second, now_ns);
    }
    if (count < static_cast<int>(events.size())) return;
  }
}

void Turns::Wake(std::list<Turn>::iterator turn, uint64_t now_ns) {
  turn->session->Awake(now_ns);  // also if it is awake: its doorbell would be found again
  if (!std::exchange(turn->asleep, false)) return;
  turn->idle_since_ns = 0;
  policy_.Wakes(*turn->account);
  awake_.splice(awake_.end(), asleep_, turn);
}

bool Turns::PrepareSleep() {
  for (const Turn& turn : awake_) {
    if (!turn.waits) turn.session->transport().SayAsleep();
  }
  if (!awake_.empty()) awake_.front().session->transport().BarrierBeforeSleep();
  bool arrived = false;
  for (const Turn& turn : awake_) arrived |= !turn.waits && turn.session->HasCommands();
  return arrived;
}

void Turns::EndSleep(uint64_t now_ns) {
  for (const Turn& turn : awake_) {
    if (!turn.waits) turn.session->Awake(now_ns);
  }
  if (!asleep_.empty()) WakeRungNow(now_ns);
}

}  // namespace xpud::lane
