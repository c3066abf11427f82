// The cost of a command: publishing it, and its round trip. Against a running daemon ($XPUD_ADDRESS).
//
//   bench_ring          reports rows
//   bench_ring --idle   connects, prints `ready`, and idles until its input ends (for bench_idle.py)
#include <grpcpp/create_channel.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <thread>

#include "proto/control/xpud.grpc.pb.h"
#include "sdk/client/connect.h"
#include "tests/bench/nop_stream.h"
#include "tests/bench/rows.h"

namespace xpud::bench {
namespace {

// The baseline: a flag that another process answers through shared memory; both spin.
class FlagEcho {
 public:
  FlagEcho() {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    flags_ = new (page) Flags;
    child_ = fork();
    if (child_ == 0) Echo();
  }
  ~FlagEcho() {
    flags_->ask.store(UINT64_MAX, std::memory_order_release);
    waitpid(child_, nullptr, 0);
  }

  void RoundTrip() {
    flags_->ask.store(++round_, std::memory_order_release);
    while (flags_->answer.load(std::memory_order_acquire) != round_) __builtin_ia32_pause();
  }

 private:
  struct Flags {
    alignas(64) std::atomic<uint64_t> ask{0};
    alignas(64) std::atomic<uint64_t> answer{0};
  };

  [[noreturn]] void Echo() {
    for (uint64_t seen = 0; seen != UINT64_MAX;) {
      const uint64_t now = flags_->ask.load(std::memory_order_acquire);
      if (now == seen) {
        __builtin_ia32_pause();
        continue;
      }
      flags_->answer.store(seen = now, std::memory_order_release);
    }
    _exit(0);
  }

  Flags* flags_;
  pid_t child_;
  uint64_t round_ = 0;
};

// Another baseline: a unary call of the same daemon's control plane on a unix socket.
class ControlCall {
 public:
  explicit ControlCall(const std::string& address)
      : stub_(v1::Control::NewStub(grpc::CreateChannel(
            "unix:" + std::filesystem::path(address).replace_filename("control.sock").string(),
            grpc::InsecureChannelCredentials()))) {}

  void RoundTrip() {
    grpc::ClientContext context;
    v1::GetVersionResponse response;
    if (const grpc::Status status = stub_->GetVersion(&context, {}, &response); !status.ok()) {
      Need(absl::UnavailableError(status.error_message()));
    }
  }

 private:
  std::unique_ptr<v1::Control::Stub> stub_;
};

// Returns the nanoseconds of each of `count` calls.
template <typename Trip>
std::vector<int64_t> Sample(Trip&& trip, int count) {
  std::vector<int64_t> samples;
  samples.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const int64_t began = NowNs();
    trip();
    samples.push_back(NowNs() - began);
  }
  return samples;
}

void Append(std::vector<int64_t>& all, const std::vector<int64_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

void MeasurePublish(NopStream& stream) {
  const int count = Smoke() ? 100'000 : 1'000'000;
  std::vector<int64_t> rounds;
  for (int round = 0; round < 5; ++round) {
    stream.RoundTrip();  // awake
    uint64_t last = 0;
    const int64_t began = NowNs();
    for (int i = 0; i < count; ++i) last = stream.Publish();
    rounds.push_back(NowNs() - began);
    stream.Await(last);
  }
  Emit({.name = "publish one command, sustained",
        .value = Quantile(rounds, 0.5) / count,
        .unit = "ns",
        .target = Row::Target{.limit = 100}});
}

void MeasureRoundTrips(NopStream& stream, const std::string& address) {
  std::vector<int64_t> ours, flag, grpc;
  ControlCall control(address);
  for (int round = 0; round < (Smoke() ? 2 : 20); ++round) {
    Append(ours, Sample([&] { stream.RoundTrip(); }, 5000));
    Append(grpc, Sample([&] { control.RoundTrip(); }, 200));
    FlagEcho echo;  // started last, because its process spins
    Sample([&] { echo.RoundTrip(); }, 100);
    Append(flag, Sample([&] { echo.RoundTrip(); }, 5000));
  }
  const double flag_us = Quantile(flag, 0.5) / 1e3, grpc_us = Quantile(grpc, 0.5) / 1e3;
  Emit({.name = "no-op round trip, awake, p50",
        .value = Quantile(ours, 0.5) / 1e3,
        .unit = "us",
        .baseline = "flag through shared memory, p50",
        .baseline_value = flag_us,
        .target = Row::Target{.limit = 1.5}});
  Emit({.name = "no-op round trip, awake, p99",
        .value = Quantile(ours, 0.99) / 1e3,
        .unit = "us",
        .baseline = "gRPC unary on a unix socket, p50",
        .baseline_value = grpc_us,
        .target = Row::Target{.limit = 10}});
}

void MeasureAsleep(NopStream& stream) {
  std::vector<int64_t> samples;
  for (int i = 0; i < (Smoke() ? 5 : 100); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    Append(samples, Sample([&] { stream.RoundTrip(); }, 1));
  }
  Emit({.name = "no-op round trip, daemon asleep, p50", .value = Quantile(samples, 0.5) / 1e3, .unit = "us"});
}

int Main(bool idle) {
  ConnectOptions options;
  options.client_name = "bench_ring";
  NopStream stream(options);
  if (idle) {
    std::cout << "ready" << std::endl;
    std::cin.get();
    return 0;
  }
  MeasurePublish(stream);
  MeasureRoundTrips(stream, stream.address());
  MeasureAsleep(stream);
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) { return xpud::bench::Main(argc > 1 && std::string(argv[1]) == "--idle"); }
