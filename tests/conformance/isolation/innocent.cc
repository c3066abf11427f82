#include "tests/conformance/isolation/innocent.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <thread>

#include "gtest/gtest.h"
#include "proto/base/check.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/scribble.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kKeptBytes = 1 << 20;
constexpr uint64_t kKeptSeed = 77;
constexpr uint64_t kLookEvery = 16;  // rounds between two checks of the kept bytes

// Small integers, so that float32 sums of products are exact.
std::vector<float> Integers(int64_t count, int64_t step, int64_t modulus) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = static_cast<float>(i * step % modulus);
  return values;
}

std::vector<float> Product(const std::vector<float>& a, const std::vector<float>& b, size_t n) {
  std::vector<float> out(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < n; ++k) {
      for (size_t j = 0; j < n; ++j) out[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
  return out;
}

// Its computation: (a x b + a) * 2, with a new `a` on the device in each round and a constant `b`.
class Work {
 public:
  Work(Session& session, int64_t size)
      : queue_(session.DefaultQueue(0)),
        size_(size),
        a_(Integers(size * size, 7, 11)),
        b_(Integers(size * size, 5, 13)),
        expected_(Product(a_, b_, static_cast<size_t>(size))) {
    for (size_t i = 0; i < a_.size(); ++i) expected_[i] = (expected_[i] + a_[i]) * 2;
  }

  absl::Status Begin() {
    auto b = Tensor::FromHost(queue_, std::span<const float>(b_), {size_, size_});
    if (!b.ok()) return b.status();
    on_device_ = *std::move(b);
    auto kept = queue_.Allocate(kKeptBytes);
    if (!kept.ok()) return kept.status();
    kept_ = *std::move(kept);
    return queue_.Upload(e2e::Scribbled(kKeptBytes, kKeptSeed), kept_.handle(), 0);
  }
  // Returns whether every number was correct.
  absl::StatusOr<bool> Round() {
    auto a = Tensor::FromHost(queue_, std::span<const float>(a_), {size_, size_});
    if (!a.ok()) return a.status();
    auto product = Matmul(*a, on_device_);
    if (!product.ok()) return product.status();
    auto sum = Add(*product, *a);
    if (!sum.ok()) return sum.status();
    auto doubled = Mul(*sum, 2.0);
    if (!doubled.ok()) return doubled.status();
    auto values = doubled->ToFloats();
    if (!values.ok()) return values.status();
    return *values == expected_;
  }
  absl::StatusOr<bool> KeptIsIntact() {
    std::vector<std::byte> bytes(kKeptBytes);
    if (absl::Status status = queue_.Download(kept_.handle(), 0, bytes); !status.ok()) return status;
    return bytes == e2e::Scribbled(kKeptBytes, kKeptSeed);
  }

 private:
  Queue queue_;
  const int64_t size_;
  const std::vector<float> a_, b_;
  std::vector<float> expected_;
  Tensor on_device_;
  Buffer kept_;
};

}  // namespace

void Innocent::Main(const std::string& socket, const std::string& name, int64_t size,
                    std::chrono::microseconds pause, Findings& findings) {
  const auto fail = [&](const absl::Status& status) {
    std::snprintf(findings.error, sizeof(findings.error), "%s", status.ToString().c_str());
    ++findings.errors;
  };
  ConnectOptions options;
  options.address = socket;
  options.client_name = name;
  auto session = Session::Connect(options);
  if (!session.ok()) return fail(session.status());
  auto* const work = new Work(**session, size);  // lives as long as the process, which may be killed
  if (absl::Status begun = work->Begin(); !begun.ok()) return fail(begun);
  while (!findings.stop) {
    const auto start = Clock::now();
    absl::StatusOr<bool> right = work->Round();
    const std::chrono::duration<float, std::micro> took = Clock::now() - start;
    if (right.ok() && *right && findings.rounds % kLookEvery == 0) right = work->KeptIsIntact();
    if (!right.ok()) return fail(right.status());
    findings.wrong += !*right;
    findings.microseconds[findings.timed++ % kMaxTimes] = took.count();
    ++findings.rounds;
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
  }
  new auto(*std::move(session));
}

Innocent::Innocent(const std::string& socket, int64_t size, const std::string& name,
                   std::chrono::microseconds pause)
    : findings_(static_cast<Findings*>(
          mmap(nullptr, sizeof(Findings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  XPUD_CHECK(findings_ != MAP_FAILED);
  child_ = std::make_unique<Child>([&] { Main(socket, name, size, pause, *findings_); });
  ExpectUnharmed();
  taken_ = findings_->timed;  // kernels were compiled
}

Innocent::~Innocent() {
  findings_->stop = true;
  e2e::Within(milliseconds(200), [&, last = rounds()] { return rounds() > last; });
  child_->Kill();
  munmap(findings_, sizeof(Findings));
}

void Innocent::ExpectUnharmed(milliseconds limit) const {
  const uint64_t goal = rounds() + 2 * kLookEvery;
  EXPECT_TRUE(e2e::Within(limit, [&] { return rounds() >= goal || findings_->errors != 0; }))
      << "the innocent client does not go on";
  EXPECT_EQ(findings_->errors, 0u) << findings_->error;
  EXPECT_EQ(findings_->wrong, 0u);
}

std::vector<double> Innocent::TakeRoundTimes() {
  const uint64_t end = findings_->timed;
  std::vector<double> times;
  for (uint64_t i = std::max(taken_, end - std::min<uint64_t>(end, kMaxTimes)); i < end; ++i)
    times.push_back(findings_->microseconds[i % kMaxTimes]);
  taken_ = end;
  return times;
}

double Innocent::TakeLongestMs() {
  const std::vector<double> times = TakeRoundTimes();
  return times.empty() ? 0 : *std::max_element(times.begin(), times.end()) / 1000;
}

double Percentile(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(static_cast<double>(values.size()) * percent / 100);
  return values[std::min(at, values.size() - 1)];
}

}  // namespace xpud::isolation
