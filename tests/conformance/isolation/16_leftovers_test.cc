// Memory that another user's client has used: device memory, workspaces of kernels, staging.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

constexpr uid_t kFirst = 54321, kSecond = 54322;
constexpr uint64_t kSecret = 0x5ec2e75ec2e75ec2;
constexpr uint64_t kSizes[] = {64, 200, 1024, 4096, 10'000, 65'536, 300'000, 1 << 20, 3 << 20};
constexpr uint32_t kOfEachSize = 4;

// One test for each way to drive the device. Needs root, to act as two other users.
class Leftovers : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be two other users";
    std::vector<std::string> flags = GetParam();
    flags.insert(flags.end(), {"--socket-mode", "0666"});
    daemon_ = std::make_unique<e2e::DaemonProcess>(flags);
    ASSERT_EQ(chmod(daemon_->directory().c_str(), 0755), 0);
    innocent_ = std::make_unique<Innocent>(daemon_->socket());
  }
  std::unique_ptr<e2e::DaemonProcess> daemon_;
  std::unique_ptr<Innocent> innocent_;
};

void WriteSecrets(const std::string& socket) {
  HostileSession session(socket, "first");
  const auto staging =
      std::span(reinterpret_cast<uint64_t*>(session.staging().data()), session.staging().size() / 8);
  std::fill(staging.begin(), staging.end(), kSecret);
  uint32_t id = 0;
  for (const uint64_t size : kSizes) {
    for (uint32_t i = 0; i < kOfEachSize; ++i) {
      session.Put(Allocate({++id, 1}, size));
      session.Put(Upload({id, 1}, 0, {0, 0, 0}, size));
      // Half of it is given back before the end.
      if (i % 2 == 0) session.Put(Free({id, 1}));
    }
  }
  // Workspaces of kernels: a product and sums over a whole buffer of secrets.
  const wire::Handle large = {id, 1};
  const View a = TensorView(large, {512, 512}), out = TensorView({id - 2, 1}, {512, 512});
  for (int i = 0; i < 3; ++i) {
    Call product = RightCall(ops::RowOf("mm"));
    product.outputs = {out}, product.inputs = {a, a, View{}};
    session.Put(product.bytes());
    const View sum = TensorView({id - 2, 1}, {1, 512});
    session.Put(Execute(ops::RowOf("sum"), ops::DType::kFloat32, {&sum, 1}, {&a, 1}));
  }
  if (!session.Settle().ok() && session.closed()) _exit(101);
  raise(SIGKILL);
}

// 0, or kFailed if old data was found.
constexpr int kFailed = 200;
int LookForSecrets(const std::string& socket) {
  HostileSession session(socket, "second");
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (!std::all_of(session.staging().begin(), session.staging().end(), is_zero)) return 1;
  if (!std::all_of(session.ring().begin(), session.ring().end(), is_zero)) return 2;
  uint32_t id = 0;
  for (const uint64_t size : kSizes) {
    for (uint32_t i = 0; i < 2 * kOfEachSize; ++i) {
      session.Put(Allocate({++id, 1}, size));
      std::fill(session.staging().begin(), session.staging().end(), std::byte{0xff});
      session.Put(Download({id, 1}, 0, {0, 0, 0}, size));
      if (!session.Settle().ok()) return kFailed;
      if (!std::all_of(session.staging().begin(), session.staging().begin() + static_cast<ptrdiff_t>(size),
                       is_zero))
        return 3;
    }
  }
  return 0;
}

TEST_P(Leftovers, OfOneUserAreNotReadByTheNext) {
  for (int round = 0; round < 5; ++round) {
    Child first([&] {
      BecomeUser(kFirst);
      WriteSecrets(daemon_->socket());
    });
    const int status = first.Wait();
    ASSERT_TRUE(WIFSIGNALED(status)) << WEXITSTATUS(status);
    ASSERT_TRUE(e2e::Within(std::chrono::seconds(20), [&] { return Vitals::Of(*daemon_).sessions == 1; }));
    Child second([&] {
      BecomeUser(kSecond);
      _exit(LookForSecrets(daemon_->socket()));
    });
    EXPECT_EQ(WEXITSTATUS(second.Wait()), 0) << "1: staging, 2: ring, 3: device memory, 200: an error";
  }
  innocent_->ExpectUnharmed();
}

INSTANTIATE_TEST_SUITE_P(Devices, Leftovers,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"--asynchronous"},
                                           std::vector<std::string>{"--executor", "process"}));

}  // namespace
}  // namespace xpud::isolation
