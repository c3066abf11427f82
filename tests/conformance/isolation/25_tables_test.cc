// Sessions that create as many buffers as possible: the daemon's records of buffers are not charged as device
// memory.
#include <algorithm>
#include <chrono>
#include <string>

#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kMax = wire::kMaxBuffers - 1;
constexpr uint64_t kTooMuch = uint64_t{1} << 60;

using Tables = Isolation;

// Buffers whose allocation fails, so that they use no device memory.
absl::Status Fill(HostileSession& session, uint32_t last) {
  for (uint32_t id = 1; id <= last && !session.gone(); ++id) session.Put(Allocate({id, 1}, kTooMuch));
  return session.Settle();
}

// Returns the time of a hundred errors, each reported before the next; the best of five measurements, because
// the machine is shared.
Clock::duration TimeOfErrors(HostileSession& session) {
  auto best = Clock::duration::max();
  for (int round = 0; round < 5; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < 100; ++i) {
      session.Put(Upload({~0u, 1}, 0, {0, 0, 0}, 64));
      EXPECT_THAT(TextOf(session.Settle()), HasSubstr("does not exist"));
    }
    EXPECT_TRUE(session.Settle().ok());
    best = std::min(best, Clock::now() - start);
  }
  return best;
}

TEST_F(Tables, AFullOneIsBoundedAndDoesNotSlowReportsOfErrorsDown) {
  {
    HostileSession session(socket());
    const auto empty = TimeOfErrors(session);
    EXPECT_THAT(TextOf(Fill(session, kMax)), HasSubstr("XPUD out of memory"));
    EXPECT_TRUE(session.Settle().ok());
    const Vitals full = Vitals::Of(daemon_);
    EXPECT_LT(full.resident_bytes - before_.resident_bytes, 128 * kMiB);
    const auto slow = TimeOfErrors(session);
    EXPECT_LT(slow, empty + milliseconds(300));
    std::printf("[ figures  ] %u buffers take %.1f MiB; 100 errors take %.1f ms, without buffers %.1f ms\n",
                kMax, static_cast<double>(full.resident_bytes - before_.resident_bytes) / kMiB,
                std::chrono::duration<double, std::milli>(slow).count(),
                std::chrono::duration<double, std::milli>(empty).count());
    innocent_.ExpectUnharmed();
    session.Put(Allocate({kMax + 1, 1}, 0));
    EXPECT_THAT(session.Fate(), HasSubstr("at most " + std::to_string(kMax) + " buffers"));
  }
  ExpectAsBefore({.resident = 16 * kMiB, .mappings = 64});
}

TEST_F(Tables, OfAUsersSessionsAreBoundedTogether) {
  std::vector<std::unique_ptr<HostileSession>> sessions;
  std::string end;
  while (sessions.size() < 8 && end.empty()) {
    sessions.push_back(std::make_unique<HostileSession>(socket()));
    (void)Fill(*sessions.back(), kMax);
    if (sessions.back()->closed()) end = sessions.back()->Fate();
  }
  EXPECT_THAT(end, HasSubstr("buffers; 4194304 are allowed"));
  EXPECT_EQ(sessions.size(), 4u) << "with the innocent client's, four are more than may be";
  innocent_.ExpectUnharmed();
  sessions.clear();
  ExpectAsBefore({.resident = 16 * kMiB, .mappings = 64});
  HostileSession next(socket());
  (void)Fill(next, kMax);
  EXPECT_FALSE(next.closed()) << "the room was not given back";
}

}  // namespace
}  // namespace xpud::isolation
