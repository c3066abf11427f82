// A client's round trips beside a crowd of idle sessions on the same device, against the same client alone,
// in turns. Against a running daemon ($XPUD_ADDRESS).
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/rows.h"
#include "xpud/xpud.h"

namespace xpud::bench {
namespace {

constexpr size_t kCrowd = 500;
constexpr std::chrono::milliseconds kSettle{100};  // until idle sessions sleep

std::unique_ptr<Session> Connect(const std::string& name) {
  ConnectOptions options;
  options.client_name = name;
  auto session = Take(Session::Connect(options));
  (void)Take(session->DefaultQueue(0).Allocate(64));  // opens the device
  Need(session->DefaultQueue(0).Synchronize());
  return session;
}

class Client {
 public:
  Client()
      : session_(Connect("bench_crowd")),
        queue_(session_->DefaultQueue(0)),
        buffer_(Take(queue_.Allocate(64))) {}

  // A tiny upload and its wait, after a pause in which the daemon may fall asleep.
  void Sample(std::chrono::microseconds pause, std::vector<int64_t>& times) const {
    const std::byte bytes[64] = {};
    const int count = Smoke() ? 20 : 2000;
    std::this_thread::sleep_for(kSettle);
    for (int i = 0; i < count; ++i) {
      if (pause.count() != 0 && i % 10 == 0) std::this_thread::sleep_for(pause);
      const int64_t began = NowNs();
      Need(queue_.Upload(bytes, buffer_.handle(), 0));
      Need(queue_.Synchronize());
      times.push_back(NowNs() - began);
    }
  }

 private:
  std::unique_ptr<Session> session_;
  Queue queue_;
  Buffer buffer_;
};

void Report(const std::string& name, double quantile, std::vector<int64_t>& beside,
            std::vector<int64_t>& alone) {
  Emit({.name = name,
        .value = Quantile(beside, quantile) / 1e3,
        .unit = "us",
        .baseline = "alone",
        .baseline_value = Quantile(alone, quantile) / 1e3,
        .target = Row::Target{.of_ratio = true, .limit = 1.2}});
}

int Main() {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const Client client;
  std::vector<int64_t> beside, alone, beside_slow, alone_slow;
  const std::chrono::microseconds none{0}, pause{1000};
  for (int round = 0; round < (Smoke() ? 1 : 5); ++round) {
    client.Sample(none, alone);
    client.Sample(pause, alone_slow);
    std::vector<std::unique_ptr<Session>> crowd;
    while (crowd.size() < kCrowd) crowd.push_back(Connect("crowd"));
    client.Sample(none, beside);
    client.Sample(pause, beside_slow);
  }
  Report("a tiny upload and its wait, beside 500 idle sessions, p50", 0.5, beside, alone);
  Report("a tiny upload and its wait, beside 500 idle sessions, p99", 0.99, beside, alone);
  Report("the same with pauses of 1 ms, p99", 0.99, beside_slow, alone_slow);
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main() { return xpud::bench::Main(); }
