// The cost of a command in long streams of tiny commands, compared between daemons:
//
// clang-format off
//   command_costs ADDRESS...   runs streams in turns against each daemon; prints a line of JSON for each stream
// clang-format on
//
// About a hundred commands are published at once, while the daemon is awake. The time until they are done is
// measured; the client only waits.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/bench/command_stream.h"
#include "tests/bench/rows.h"

namespace xpud::bench {
namespace {

struct Kind {
  const char* name;
  int commands;  // per step
  int steps;     // published at once; 16 KiB at most
  void (CommandStream::*step)();
};

constexpr Kind kKinds[] = {{"no-op", 1, 2000, &CommandStream::Nop},
                           {"add 16x16", 1, 100, &CommandStream::Add},
                           {"allocate, add 16x16, free", 3, 80, &CommandStream::AddAnew},
                           {"embedding, one row of 16", 1, 100, &CommandStream::Embed}};

// Appends the times of some rounds.
void Measure(CommandStream& stream, const Kind& kind, std::vector<int64_t>& times) {
  constexpr int kRounds = 20;
  stream.Nop();
  stream.Finish();  // wakes the daemon and flushes earlier work from its caches
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kind.steps; ++i) (stream.*kind.step)();
    const int64_t began = NowNs();
    stream.Finish();
    if (round != 0) times.push_back(NowNs() - began);
  }
}

// Returns the median nanoseconds per command of each daemon.
std::vector<double> Measure(const std::vector<std::unique_ptr<CommandStream>>& streams, const Kind& kind) {
  std::vector<std::vector<int64_t>> times(streams.size());
  const int turns = Smoke() ? 2 : 1000;
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < streams.size(); ++i) {
      const size_t which = (static_cast<size_t>(turn) + i) % streams.size();
      Measure(*streams[which], kind, times[which]);
    }
  }
  std::vector<double> each;
  for (std::vector<int64_t>& of_one : times)
    each.push_back(Quantile(of_one, 0.5) / kind.steps / kind.commands);
  return each;
}

int Main(int count, char** addresses) {
  std::vector<std::unique_ptr<CommandStream>> streams;
  for (int i = 0; i < count; ++i) streams.push_back(std::make_unique<CommandStream>(addresses[i]));
  for (const Kind& kind : kKinds) {
    std::printf("{\"stream\":\"%s\",\"ns\":[%s]}\n", kind.name,
                absl::StrJoin(Measure(streams, kind), ",").c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) { return xpud::bench::Main(argc - 1, argv + 1); }
