// Which sessions are profiled. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/records/recorder.h"
#include "daemon/tenant/tenant.h"

namespace xpud::records {

// A session, all sessions of a tenant, or all sessions.
struct Selection {
  std::optional<uint64_t> session = {};
  std::optional<Tenant> tenant = {};

  bool Has(uint64_t id, const Tenant& of) const {
    return session ? *session == id : !tenant || *tenant == of;
  }
  bool operator==(const Selection&) const = default;
};

// What was asked for, for sessions that are still to come.
class Profiles {
 public:
  static constexpr int kMaxWishes = 1000;  // of an audience; the oldest are forgotten

  struct Wish {
    Audience audience = Audience::kOperators;
    Selection selection;
    size_t capacity = 0;
    uint64_t until_ns = 0;
  };

  void Start(const Wish& wish) {
    Stop(wish.audience, wish.selection);
    const auto is_same = [&](const Wish& each) { return each.audience == wish.audience; };
    if (std::ranges::count_if(wishes_, is_same) >= kMaxWishes)
      wishes_.erase(std::ranges::find_if(wishes_, is_same));
    wishes_.push_back(wish);
  }
  void Stop(Audience audience, const Selection& selection) {
    const bool all = !selection.session && !selection.tenant;
    std::erase_if(wishes_, [&](const Wish& each) {
      return each.audience == audience && (all || each.selection == selection);
    });
  }
  // Returns the audience's latest wish for a new session, or null.
  const Wish* Find(Audience audience, uint64_t session, const Tenant& tenant, uint64_t now_ns) const {
    for (auto wish = wishes_.rbegin(); wish != wishes_.rend(); ++wish)
      if (wish->audience == audience && wish->selection.Has(session, tenant) && now_ns < wish->until_ns)
        return &*wish;
    return nullptr;
  }

 private:
  std::vector<Wish> wishes_;
};

}  // namespace xpud::records
