// Clients that keep making others' memory leave the device: each claim has as much as half of it or more, and
// both use all of that all the time.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "sdk/control/client.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/e2e/floats.h"
#include "xpud/tensor.h"

namespace xpud::isolation {
namespace {

using std::chrono::seconds;

constexpr uint64_t kBlockBytes = 15 << 20;  // in a chunk of 16 MiB; the device has eight
constexpr int kBlocks = 6, kGreedy = 2;
// Tenants at work have their turns one after the other. So this many turns, of all, is a long wait: those of
// two others, and as many again for turns that end while they are counted.
constexpr uint64_t kMaxTurnsOfOthers = 6;

// Uses all that it has, round after round. Ends if something fails.
void UseAll(const std::string& door) {
  ConnectOptions options;
  options.address = door;
  options.start_daemon = false;
  const auto session = Session::Connect(options);
  if (!session.ok()) return;
  const Queue queue = (*session)->DefaultQueue(0);
  const std::vector<float> ones(kBlockBytes / sizeof(float), 1);
  std::vector<Buffer> buffers;
  for (int i = 0; i < kBlocks; ++i) {
    auto buffer = queue.Allocate(kBlockBytes);
    if (!buffer.ok()) return;
    buffers.push_back(*std::move(buffer));
    (void)queue.Upload(std::as_bytes(std::span(ones)), buffers.back().handle(), 0);
  }
  while (queue.Synchronize().ok()) {
    for (const Buffer& buffer : buffers) {
      (void)e2e::ExecuteInPlace(queue, buffer, "mul.Tensor", {1});
    }
  }
}

std::string MakeFolder() {
  std::string folder = "/tmp/xpud-moved-out-XXXXXX";
  return mkdtemp(folder.data()) == nullptr ? "" : folder;
}

class MovedMemory : public Isolation {
 protected:
  explicit MovedMemory(std::vector<std::string> more = {"--move-out", "512MiB"})
      : Isolation(With(std::move(more))) {}
  void SetUp() override {
    if (IsRemote()) GTEST_SKIP() << "doors are sockets of this machine";
  }
  static std::vector<std::string> With(std::vector<std::string> more) {
    more.insert(more.end(), {"--test-device-memory", "128MiB"});
    return more;
  }

  void StartGreedy() {
    auto client = *control::Client::Connect(daemon_.socket());
    for (int i = 0; i < kGreedy; ++i) {
      const std::string key = "greedy" + std::to_string(i);
      v1::Claim claim;
      claim.set_key(key);
      if (attacks_ == 0) {
        const auto created = client.CreateClaim(claim);
        ASSERT_TRUE(created.ok()) << created.status();
      }
      const std::string door = daemon_.directory() + "/claims/" + key + "/xpud.sock";
      greedy_.push_back(std::make_unique<Child>([door] { UseAll(door); }));
    }
    ++attacks_;
  }
  v1::ListMemoryResponse Memory() const {
    return control::Client::Connect(daemon_.socket())->ListMemory().value_or(v1::ListMemoryResponse());
  }
  static uint64_t TurnsIn(const v1::ListMemoryResponse& memory) {
    return memory.devices_size() == 0 ? 0 : memory.devices(0).turns();
  }
  static uint64_t InnocentsMovesIn(const v1::ListMemoryResponse& memory) {
    const auto found = std::ranges::find_if(
        memory.tenants(), [](const auto& tenant) { return tenant.tenant().find("claim:") != 0; });
    return found == memory.tenants().end() ? 0 : found->moved_out_total_bytes();
  }
  // Lasts for so many turns. Counts those between two rounds of the innocent client.
  void Attack(uint64_t turns) {
    StartGreedy();
    v1::ListMemoryResponse now = Memory();
    const uint64_t until = TurnsIn(now) + turns, moved_before = InnocentsMovesIn(now);
    uint64_t rounds = innocent_.rounds(), turns_then = TurnsIn(now), longest = 0, counted = 0;
    ASSERT_TRUE(e2e::Within(seconds(240), [&] {
      now = Memory();
      most_in_file_ = std::max(most_in_file_, now.devices_size() == 0 ? 0 : now.devices(0).file_bytes());
      if (const uint64_t more = innocent_.rounds(); more != rounds) {
        counted += more - rounds;
        rounds = more;
        turns_then = TurnsIn(now);
      }
      longest = std::max(longest, TurnsIn(now) - turns_then);
      return TurnsIn(now) >= until;
    }));
    for (const auto& greedy : greedy_) EXPECT_TRUE(IsAlive(greedy->pid())) << "the attack has ended early";
    const uint64_t moved = InnocentsMovesIn(now) - moved_before;
    std::printf("[ figures  ] %d turns, %d rounds, at most %d turns between two; %d MiB moved\n",
                static_cast<int>(turns), static_cast<int>(counted), static_cast<int>(longest),
                static_cast<int>(moved >> 20));
    EXPECT_GT(moved, 0u) << "the innocent client's memory has never left";
    EXPECT_LE(longest, kMaxTurnsOfOthers);
    innocent_.ExpectUnharmed();
    greedy_.clear();
    EXPECT_TRUE(
        e2e::Within(seconds(20), [&] { return Vitals::Of(daemon_).sessions == before_.sessions + kept_; }));
  }
  // The first attack starts threads, and takes host memory.
  void AttackTwice() {
    Attack(10);
    const int64_t innocents = before_.memory_used;
    before_ = Vitals::Of(daemon_);
    before_.memory_used = innocents;
    Attack(InFull() ? 400 : 30);
    ExpectAsBefore();
  }

  int attacks_ = 0;
  int kept_ = 0;  // sessions of the test itself
  uint64_t most_in_file_ = 0;
  std::vector<std::unique_ptr<Child>> greedy_;
};

TEST_F(MovedMemory, OfOthersReturnsInTheirTurnWithTheirNumbers) { AttackTwice(); }

struct Folder {
  const std::string path = MakeFolder();
  ~Folder() { std::filesystem::remove(path); }
};

// The host has room for half of what leaves.
class FiledMemory : Folder, public MovedMemory {
 protected:
  FiledMemory()
      : MovedMemory({"--move-out", "128MiB", "--move-out-folder", path, "--move-out-files", "1GiB"}) {}
};

TEST_F(FiledMemory, OfOthersReturnsInTheirTurnWithTheirNumbers) {
  // Has memory as well, and is not at work: it fills the host.
  v1::Claim claim;
  claim.set_key("idle");
  ASSERT_TRUE(control::Client::Connect(daemon_.socket())->CreateClaim(claim).ok());
  ConnectOptions options;
  options.address = daemon_.directory() + "/claims/idle/xpud.sock";
  options.start_daemon = false;
  auto idle = Session::Connect(options);
  ASSERT_TRUE(idle.ok()) << idle.status();
  std::vector<Buffer> buffers;
  const std::vector<std::byte> bytes(kBlockBytes, std::byte{7});
  for (int i = 0; i < kBlocks; ++i) {
    auto buffer = (*idle)->DefaultQueue(0).Allocate(kBlockBytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffers.push_back(*std::move(buffer));
    ASSERT_TRUE((*idle)->DefaultQueue(0).Upload(bytes, buffers.back().handle(), 0).ok());
  }
  kept_ = 1;
  Attack(30);
  EXPECT_GT(most_in_file_, 0u);
  for (const Buffer& buffer : buffers) {
    std::vector<std::byte> read(kBlockBytes);
    ASSERT_TRUE((*idle)->DefaultQueue(0).Download(buffer.handle(), 0, read).ok());
    EXPECT_EQ(read, bytes);
  }
  innocent_.ExpectUnharmed();
}

}  // namespace
}  // namespace xpud::isolation
