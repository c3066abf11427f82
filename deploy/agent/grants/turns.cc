#include "deploy/agent/grants/turns.h"

#include <algorithm>
#include <utility>

#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {
namespace {

absl::Status NoTurn() { return absl::UnavailableError("the agent is ending; try again"); }

}  // namespace

absl::StatusOr<std::unique_ptr<Turns>> Turns::Start() {
  std::unique_ptr<Turns> turns(new Turns());
  for (int i = 0; i < kThreads; ++i) {
    ASSIGN_OR_RETURN(std::thread thread, StartThread("xpud-grants", [raw = turns.get()] { raw->Run(); }));
    turns->threads_.push_back(std::move(thread));
  }
  return turns;
}

void Turns::End() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::map<uint32_t, User> users;
  {
    MutexLock lock(mutex_);
    users.swap(users_);
  }
  for (auto& [uid, user] : users)
    for (Waiting& each : user.waiting) each.task(NoTurn());
}

void Turns::Add(uint32_t uid, Pace pace, Task task) {
  {
    MutexLock lock(mutex_);
    if (!ends_) {
      users_[uid].waiting.push_back({pace, std::move(task)});
      return changed_.NotifyOne();
    }
  }
  task(NoTurn());
}

Turns::User* Turns::Next(Clock::time_point& wake) {
  const Clock::time_point now = Clock::now();
  wake = Clock::time_point::max();
  const auto first = users_.upper_bound(last_);
  for (const auto& [from, to] : {std::pair(first, users_.end()), std::pair(users_.begin(), first)}) {
    for (auto each = from; each != to; ++each) {
      User& user = each->second;
      if (user.waiting.empty() || user.runs) continue;
      const Clock::time_point due = user.paid - kBurst * kPeriod;
      if (user.waiting.front().pace == Pace::kUnlimited || due <= now) {
        last_ = each->first;
        return &user;
      }
      wake = std::min(wake, due);
    }
  }
  return nullptr;
}

void Turns::Forget() {
  std::erase_if(users_, [now = Clock::now()](const auto& each) {
    const User& user = each.second;
    return user.waiting.empty() && !user.runs && user.paid <= now;
  });
}

void Turns::RunNext(User& user) {
  Waiting next = std::move(user.waiting.front());
  user.waiting.pop_front();
  user.runs = true;
  if (next.pace == Pace::kLimited) user.paid = std::max(user.paid, Clock::now()) + kPeriod;
  mutex_.Unlock();
  next.task(absl::OkStatus());
  next.task = nullptr;  // what it holds may take long to go
  mutex_.Lock();
  user.runs = false;
  Forget();
  changed_.NotifyAll();
}

void Turns::Run() {
  MutexLock lock(mutex_);
  while (!ends_) {
    Clock::time_point wake;
    User* const user = Next(wake);
    if (user == nullptr && wake == Clock::time_point::max()) {
      changed_.Wait(mutex_);
    } else if (user == nullptr) {
      changed_.WaitFor(mutex_, wake - Clock::now());
    } else {
      RunNext(*user);
    }
  }
}

}  // namespace xpud::agent
