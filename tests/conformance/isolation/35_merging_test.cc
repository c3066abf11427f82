// Clients that load what another one has, so that both have one memory, and write it at any time.
#include <unistd.h>

#include <chrono>
#include <random>
#include <thread>

#include "sdk/control/client.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr int kBuffers = 3;

// Values that no program has by chance. Each buffer's are others.
std::vector<float> Values(int buffer) {
  std::vector<float> values(kBytes / sizeof(float));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 3 + static_cast<size_t>(buffer));
  return values;
}

absl::Status Double(const Queue& queue, const Buffer& buffer, int64_t count) {
  const int64_t sizes[] = {count};
  TensorRef part;
  part.kind = TensorRef::Kind::kTensor;
  part.rank = 1;
  part.buffer = buffer.handle();
  part.sizes = sizes;
  const TensorRef inputs[] = {part, TensorRef::Immediate(2.0)};
  return queue.Execute({&ops::RowOf("mul.Tensor"), ops::DType::kFloat32, {&part, 1}, inputs, {}});
}

// A client that never ends by itself: it loads, pauses, and writes all or a part in all ways that there are.
void Live(const std::string& address, unsigned seed) {
  std::minstd_rand random(seed);
  ConnectOptions options;
  options.address = address;
  const auto session = Session::Connect(options);
  if (!session.ok()) return;
  const Queue queue = (*session)->DefaultQueue(0);
  auto other = (*session)->CreateQueue(0);
  if (!other.ok()) return;
  const std::vector<float> noise(1000, -1);
  while (true) {
    for (int i = 0; i < kBuffers; ++i) {
      auto buffer = queue.Allocate(kBytes);
      if (!buffer.ok()) return;
      const std::vector<float> values = Values(i);
      (void)queue.Upload(std::as_bytes(std::span(values)), buffer->handle(), 0);
      (void)queue.Synchronize();
      usleep(random() % 20'000);  // it may be merged now
      const uint64_t at = random() % 100 * 4096;
      switch (random() % 5) {
        case 0:
          (void)queue.Upload(std::as_bytes(std::span(noise)), buffer->handle(), at);
          break;
        case 1:
          (void)Double(queue, *buffer, 1 + static_cast<int64_t>(random() % 1000));
          break;
        case 2:
          (void)Double(queue, *buffer, 1);
          (void)Double(*other, *buffer, 1);
          break;
        case 3:
          (void)queue.Copy(buffer->handle(), 0, buffer->handle(), kBytes / 2, 4096);
          break;
        default:
          (void)(*session)->Share(*buffer);
          (void)Double(queue, *buffer, 7);
      }
    }
  }
}

class Merging : public Isolation {
 protected:
  Merging() : Isolation({"--merge", "tenant"}) {}
  v1::TenantMemory Memory() const {
    const auto answer = control::Client::Connect(daemon_.socket())->ListMemory();
    return answer.ok() && answer->tenants_size() > 0 ? answer->tenants(0) : v1::TenantMemory();
  }
};

TEST_F(Merging, WritersOfMemoryThatIsMergedHarmNobodyAndLeaveNothing) {
  if (IsRemote()) GTEST_SKIP() << "sessions of a gateway are of another tenant";
  const int kKills = InFull() ? 2'000 : 60;
  const auto victim = daemon_.Connect("victim");
  const Queue queue = victim->DefaultQueue(0);
  std::vector<Buffer> buffers;
  for (int i = 0; i < kBuffers; ++i) {
    buffers.push_back(*queue.Allocate(kBytes));
    const std::vector<float> values = Values(i);
    ASSERT_TRUE(queue.Upload(std::as_bytes(std::span(values)), buffers.back().handle(), 0).ok());
  }
  std::minstd_rand random(33);
  std::vector<float> read(kBytes / sizeof(float));
  int kills = 0;
  // Until enough was copied: then writes have met merged memory.
  const auto is_enough = [&] { return kills >= kKills && Memory().copied_at_write_bytes() >= 20 * kBytes; };
  EXPECT_TRUE(e2e::Within(std::chrono::seconds(InFull() ? 1200 : 240), [&] {
    Child one([&] { Live(socket(), random()); }), two([&] { Live(socket(), random()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 400));
    one.Kill();
    for (size_t i = 0; i < buffers.size(); ++i) {
      const absl::Status status =
          queue.Download(buffers[i].handle(), 0, std::as_writable_bytes(std::span(read)));
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(read, Values(static_cast<int>(i))) << "buffer " << i;
    }
    two.Kill();
    kills += 2;
    if (kills == 10) before_ = Vitals::Of(daemon_);  // with the victim's session, and the kernels
    return HasFailure() || is_enough();
  })) << Memory().copied_at_write_bytes();
  std::printf("[ figures  ] %d kills, %llu MiB copied because they were written\n", kills,
              static_cast<unsigned long long>(Memory().copied_at_write_bytes() >> 20));
  buffers.clear();
  ASSERT_TRUE(queue.Synchronize().ok());
  // Tickets that nobody has taken end a minute after their sender.
  EXPECT_TRUE(e2e::Within(std::chrono::seconds(70),
                          [&] { return daemon_.StatusOf("memory_used_bytes") < 2 * kMiB; }));
  EXPECT_EQ(Memory().saved_bytes(), 0u);
  before_.memory_used = daemon_.StatusOf("memory_used_bytes");
  before_.sessions = 2;  // the victim's, and the innocent client's
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
