// The cost of zeroing memory when it changes its user: two sessions allocate in turns, first of one user,
// then of two. Against a running daemon
// ($XPUD_ADDRESS). Needs root, to act as two users.
//
//   hand_over BYTES...   prints a line of JSON for each size
#include <sys/fsuid.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/bench/rows.h"
#include "xpud/xpud.h"

namespace xpud::bench {
namespace {

constexpr uid_t kAnother = 54321;

// The daemon sees the effective user; the file system decides who may open its socket.
std::unique_ptr<Session> ConnectAs(uid_t user) {
  if (seteuid(user) != 0) Need(absl::ErrnoToStatus(errno, "only root can be two users: seteuid failed"));
  setfsuid(0);
  auto session = Session::Connect({});
  Need(session.status());
  if (seteuid(0) != 0) Need(absl::ErrnoToStatus(errno, "seteuid failed"));
  return *std::move(session);
}

// Returns the nanoseconds of allocating and freeing memory, with its acknowledgement.
int64_t Take(const Queue& queue, uint64_t bytes) {
  const int64_t began = NowNs();
  auto buffer = queue.Allocate(bytes);
  Need(buffer.status());
  buffer->Free();
  Need(queue.Synchronize());
  return NowNs() - began;
}

// Returns the median time while two sessions take turns.
double Measure(const Queue& one, const Queue& other, uint64_t bytes) {
  const int rounds = Smoke() ? 3 : 201;
  std::vector<int64_t> times;
  Take(one, bytes), Take(other, bytes);  // the first allocation creates memory
  for (int round = 0; round < rounds; ++round) {
    times.push_back(Take(one, bytes));
    times.push_back(Take(other, bytes));
  }
  return Quantile(times, 0.5);
}

int Main(int count, char** sizes) {
  const auto mine = ConnectAs(0), mine_too = ConnectAs(0), others = ConnectAs(kAnother);
  for (int i = 0; i < count; ++i) {
    const uint64_t bytes = std::strtoull(sizes[i], nullptr, 10);
    const double kept = Measure(mine->DefaultQueue(0), mine_too->DefaultQueue(0), bytes);
    const double handed = Measure(mine->DefaultQueue(0), others->DefaultQueue(0), bytes);
    std::printf("{\"bytes\":%llu,\"kept_ns\":%.0f,\"handed_ns\":%.0f}\n",
                static_cast<unsigned long long>(bytes), kept, handed);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) { return xpud::bench::Main(argc - 1, argv + 1); }
