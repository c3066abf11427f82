// A client that is independent of the hostile one: a process that computes round after round, checks every
// number of every result against its own arithmetic, and keeps bytes on the device that must not change. It
// writes its findings to memory that the test reads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/isolation/child.h"

namespace xpud::isolation {

class Innocent {
 public:
  // Size of its matrices, which determines the cost of a round.
  static constexpr int64_t kSmall = 64, kLarge = 512;
  // Between two rounds. Without a pause it takes a core and half of the device from what the test does.
  static constexpr std::chrono::microseconds kPause{500};

  // Returns when it has computed some rounds.
  explicit Innocent(const std::string& socket, int64_t size = kSmall, const std::string& name = "innocent",
                    std::chrono::microseconds pause = kPause);
  ~Innocent();

  // Checks that it makes progress within `limit`, and so far had no error and no wrong number.
  void ExpectUnharmed(std::chrono::milliseconds limit = std::chrono::seconds(20)) const;

  uint64_t rounds() const { return findings_->rounds; }
  pid_t pid() const { return child_->pid(); }
  void Signal(int signal) const { child_->Signal(signal); }
  // Returns the microseconds of the rounds since the last call.
  std::vector<double> TakeRoundTimes();
  double TakeLongestMs();

 private:
  static constexpr size_t kMaxTimes = 1 << 16;
  struct Findings {
    std::atomic<uint64_t> rounds, wrong, errors, timed;
    std::atomic<bool> stop;
    char error[512];
    float microseconds[kMaxTimes];  // ring buffer
  };

  static void Main(const std::string& socket, const std::string& name, int64_t size,
                   std::chrono::microseconds pause, Findings& findings);

  Findings* const findings_;
  uint64_t taken_ = 0;
  std::unique_ptr<Child> child_;
};

// Returns the smallest value that `percent` of the values do not exceed.
double Percentile(std::vector<double> values, double percent);

}  // namespace xpud::isolation
