// An honest client's round trips beside others who ask for all that the daemon records, against round trips
// beside an idle reader of events, as `xpuctl events` is one. Against a running daemon ($XPUD_ADDRESS).
//
//   bench_readers                 reports rows
//   bench_readers --beside NAME   prepares, prints `ready`, and asks without pause until it is killed
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/control/xpud.pb.h"
#include "sdk/control/client.h"
#include "tests/bench/rows.h"
#include "tests/e2e/signal_process.h"
#include "xpud/tensor.h"

namespace xpud::bench {
namespace {

constexpr int kNames = 65'536;
constexpr int kThreads = 4;
constexpr uint64_t kBeyond = uint64_t{1} << 60;

std::unique_ptr<Session> Connect(const std::string& name) {
  ConnectOptions options;
  options.client_name = name;
  return Take(Session::Connect(options));
}

control::Client Control() {
  const char* const address = std::getenv("XPUD_ADDRESS");
  return Take(control::Client::Connect(address == nullptr ? "" : address));
}

class Work {
 public:
  explicit Work(const Session& session)
      : queue_(session.DefaultQueue(0)),
        ones_(16, 1.0F),
        tensor_(Take(Tensor::FromHost(queue_, std::span<const float>(ones_), {4, 4}))) {}
  const Queue& queue() const { return queue_; }
  void Run(int commands) {
    for (int i = 0; i < commands; ++i) (void)Take(Add(tensor_, tensor_));
  }
  void RoundTrip() {
    if (Take(Take(Add(tensor_, tensor_)).ToFloats()) != twos_) Need(absl::InternalError("a sum is wrong"));
  }

 private:
  const Queue queue_;
  const std::vector<float> ones_, twos_ = std::vector<float>(16, 2.0F);
  const Tensor tensor_;
};

// A client whose commands each have a range of their own, profiled as operators and users do.
class Profiled {
 public:
  Profiled() : session_(Connect("profiled")), work_(*session_), control_(Control()) {
    const v1::ListSessionsResponse sessions = Take(control_.ListSessions());
    for (const v1::Session& each : sessions.sessions())
      if (each.pid() == getpid()) id_ = each.id();
    v1::StartProfileRequest start;
    start.mutable_selection()->set_session(id_);
    start.set_commands(1'000'000);
    (void)Take(control_.StartProfile(start));
    for (int i = 0; i < (Smoke() ? 100 : kNames); ++i) {
      Need(work_.queue().PushRange(absl::StrCat("range ", i)));
      work_.Run(1);
      Need(work_.queue().PopRange());
    }
    Need(work_.queue().Synchronize());
    (void)Take(control_.StopProfile(start.selection()));
  }
  Session& session() { return *session_; }
  Work& work() { return work_; }
  uint64_t id() const { return id_; }

 private:
  const std::unique_ptr<Session> session_;
  Work work_;
  control::Client control_;
  uint64_t id_ = 0;
};

struct Neighbour {
  const char* name;
  void (*ask)(control::Client& control, Profiled& profiled);  // once
};

const Neighbour kIdle = {"an idle reader of events", [](control::Client& control, Profiled&) {
                           (void)control.ListEvents(kBeyond, /*wait=*/true);
                         }};
const Neighbour kNeighbours[] = {
    {"profiles read from beyond their end",
     [](control::Client& control, Profiled& profiled) {
       (void)control.ReadProfile(profiled.id(), 0, kBeyond);
     }},
    {"profiles read",
     [](control::Client& control, Profiled& profiled) { (void)control.ReadProfile(profiled.id(), 0, 0); }},
    {"flight records read",
     [](control::Client& control, Profiled& profiled) { (void)control.ReadFlight(profiled.id(), 10'000); }},
    {"sessions and status listed",
     [](control::Client& control, Profiled&) {
       (void)control.ListSessions();
       (void)control.GetStatus();
     }},
    {"a client that profiles itself",
     [](control::Client&, Profiled& profiled) {
       // Threads take turns with one profile: some calls are refused.
       (void)profiled.session().StartProfile(0);
       profiled.work().Run(100);
       (void)profiled.session().StopProfile(0);
     }},
};

[[noreturn]] void Ask(const Neighbour& neighbour) {
  Profiled profiled;
  std::puts("ready");
  std::fflush(stdout);
  std::vector<std::thread> threads;
  for (int i = 0; i < (neighbour.name == kIdle.name ? 1 : kThreads); ++i) {
    threads.emplace_back([&] {
      control::Client control = Control();
      for (;;) neighbour.ask(control, profiled);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::abort();
}

// A process that is a neighbour. Killed with the object.
class Process {
 public:
  explicit Process(const char* neighbour) {
    int ends[2];
    if (pipe(ends) != 0) Need(absl::ErrnoToStatus(errno, "pipe"));
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      execl("/proc/self/exe", "bench_readers", "--beside", neighbour, nullptr);
      _exit(1);
    }
    close(ends[1]);
    char ready;
    if (read(ends[0], &ready, 1) != 1) Need(absl::InternalError("a neighbour ended"));
    close(ends[0]);
  }
  ~Process() {
    e2e::SignalProcess(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

std::vector<int64_t> RoundTripsBeside(Work& honest, const Neighbour& neighbour) {
  const Process process(neighbour.name);
  std::vector<int64_t> samples;
  const int64_t until = NowNs() + (Smoke() ? 50'000'000 : 2'000'000'000);
  while (NowNs() < until) {
    const int64_t began = NowNs();
    honest.RoundTrip();
    samples.push_back(NowNs() - began);
  }
  return samples;
}

int Main(const std::string& beside) {
  if (beside == kIdle.name) Ask(kIdle);
  for (const Neighbour& neighbour : kNeighbours)
    if (beside == neighbour.name) Ask(neighbour);
  const auto session = Connect("honest");
  Work honest(*session);
  for (int i = 0; i < 1000; ++i) honest.RoundTrip();
  for (const Neighbour& neighbour : kNeighbours) {
    std::vector<int64_t> with, idle;
    for (int round = 0; round < (Smoke() ? 1 : 3); ++round) {
      for (auto* const samples : {&idle, &with}) {
        const auto more = RoundTripsBeside(honest, samples == &idle ? kIdle : neighbour);
        samples->insert(samples->end(), more.begin(), more.end());
      }
    }
    for (const auto& [name, quantile] : {std::pair("p50", 0.5), std::pair("p99", 0.99)}) {
      Emit({.name = absl::StrCat("a + b and its download beside ", neighbour.name, ", ", name),
            .value = Quantile(with, quantile) / 1e3,
            .unit = "us",
            .baseline = kIdle.name,
            .baseline_value = Quantile(idle, quantile) / 1e3,
            .target =
                quantile == 0.99 ? std::optional(Row::Target{.of_ratio = true, .limit = 2}) : std::nullopt});
    }
  }
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) {
  const bool beside = argc == 3 && std::string_view(argv[1]) == "--beside";
  return xpud::bench::Main(beside ? argv[2] : "");
}
