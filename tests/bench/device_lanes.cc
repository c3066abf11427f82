// Several devices of one daemon:
//
// clang-format off
//   device_lanes ADDRESS   prints rows: commands/s on all devices beside one of them, and a round trip on device 0
//                          while the last device is saturated, beside the same alone
// clang-format on
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "proto/base/spin.h"
#include "tests/bench/command_stream.h"
#include "xpud/tensor.h"

namespace xpud::bench {
namespace {

constexpr int kClients = 2;  // for each device
constexpr int kSteps = 80;   // published at once
constexpr int kTripsAtOnce = 200;

// Clients of some devices, each on a thread of its own, which add for a while. Returns their commands per
// second.
double CommandsPerSecond(std::vector<std::unique_ptr<CommandStream>>& streams, size_t count) {
  const int64_t duration = Smoke() ? 2'000'000 : 300'000'000;
  std::atomic<int64_t> commands{0};
  std::vector<std::thread> threads;
  const int64_t began = NowNs();
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, &stream = *streams[i]] {
      int64_t sent = 0;
      while (NowNs() - began < duration) {
        for (int step = 0; step < kSteps; ++step) stream.AddAnew();
        stream.Finish();
        sent += 3 * kSteps;
      }
      commands += sent;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(commands.load()) * 1e9 / static_cast<double>(NowNs() - began);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void CompareThroughput(const std::string& address, uint32_t devices, bool has_cores) {
  std::vector<std::unique_ptr<CommandStream>> streams;
  for (uint32_t device = 0; device < devices; ++device) {
    for (int i = 0; i < kClients; ++i) streams.push_back(std::make_unique<CommandStream>(address, device));
  }
  std::vector<double> one, all;
  for (int turn = 0; turn < (Smoke() ? 2 : 15); ++turn) {
    one.push_back(CommandsPerSecond(streams, kClients));
    all.push_back(CommandsPerSecond(streams, streams.size()));
  }
  const Row::Target target = {.of_ratio = true, .at_least = true, .limit = 0.95 * devices};  // 1.9 of two
  Emit({.name = "commands of " + std::to_string(devices) + " devices",
        .value = Median(all),
        .unit = "/s",
        .baseline = "of one",
        .baseline_value = Median(one),
        .target = has_cores ? std::optional(target) : std::nullopt});
}

// The median of some round trips, in nanoseconds.
double RoundTrip(CommandStream& stream) {
  std::vector<int64_t> times;
  for (int i = 0; i < (Smoke() ? 5 : kTripsAtOnce); ++i) {
    const int64_t began = NowNs();
    stream.Add();
    stream.Finish();
    times.push_back(NowNs() - began);
  }
  return Quantile(times, 0.5);
}

// Keeps a device busy with products, while it exists.
class Saturation {
 public:
  explicit Saturation(const Queue& queue)
      : thread_([this, queue] {
          Tensor x = *Tensor::Empty(queue, ops::DType::kFloat32, {768, 768});
          while (!ends_) {
            for (int i = 0; i < 4; ++i) x = *Matmul(x, x);
            Need(queue.Synchronize());
            ++rounds_;
          }
        }) {
    while (rounds_ < 2) std::this_thread::yield();
  }
  ~Saturation() {
    ends_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

void CompareRoundTrips(const std::string& address, const Session& session, bool has_cores) {
  CommandStream stream(address, 0);
  const auto last = static_cast<uint32_t>(session.devices().size() - 1);
  std::vector<double> alone, beside;
  for (int turn = 0; turn < (Smoke() ? 1 : 15); ++turn) {
    alone.push_back(RoundTrip(stream));
    const Saturation saturation(session.DefaultQueue(last));
    beside.push_back(RoundTrip(stream));
  }
  const Row::Target target = {.of_ratio = true, .limit = 1.1};
  Emit({.name = "round trip (" + session.devices()[0].kind + ") beside a saturated " +
                session.devices()[last].kind + " device",
        .value = Median(beside) / 1000,
        .unit = "us",
        .baseline = "alone",
        .baseline_value = Median(alone) / 1000,
        .target = has_cores ? std::optional(target) : std::nullopt});
}

int Main(const std::string& address) {
  ConnectOptions options;
  options.address = address;
  auto session = Session::Connect(options);
  Need(session.status());
  const auto& devices = (*session)->devices();
  const bool has_cores = UsableCores() >= 8;
  // Those of one kind come first: GPUs, then the CPU.
  const auto alike =
      static_cast<uint32_t>(std::count_if(devices.begin(), devices.end(), [&](const DeviceInfo& device) {
        return device.kind == devices[0].kind;
      }));
  if (alike > 1) CompareThroughput(address, alike, has_cores);
  if (devices.size() > 1) CompareRoundTrips(address, **session, has_cores);
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: device_lanes ADDRESS\n");
    return 2;
  }
  return xpud::bench::Main(argv[1]);
}
