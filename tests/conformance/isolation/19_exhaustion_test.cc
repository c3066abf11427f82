// A daemon without file descriptors, address space or places for clients: new clients are refused, and
// existing ones continue.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "proto/transport/host_memory.h"
#include "sdk/client/connect.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class Exhaustion : public Isolation {
 protected:
  // Limits the daemon's resource to `most`. Once per test.
  void Limit(__rlimit_resource resource, uint64_t most) {
    ASSERT_EQ(prlimit(daemon_.pid(), resource, nullptr, &old_), 0);
    const rlimit limit = {most, old_.rlim_max};
    ASSERT_EQ(prlimit(daemon_.pid(), resource, &limit, nullptr), 0);
  }
  void Unlimit(__rlimit_resource resource) { ASSERT_EQ(prlimit(daemon_.pid(), resource, &old_, nullptr), 0); }

  absl::StatusOr<std::unique_ptr<Session>> Connect() {
    ConnectOptions options;
    options.address = socket();
    options.timeout = milliseconds(3000);
    auto session = Session::Connect(options);
    if (!session.ok()) return session;
    if (absl::Status opened = (*session)->DefaultQueue(0).Record().status(); !opened.ok()) return opened;
    return session;
  }
  // Connects until it was refused `refusals` times; each refusal must come soon.
  std::vector<std::unique_ptr<Session>> ConnectUntilRefused(int refusals) {
    std::vector<std::unique_ptr<Session>> sessions;
    while (refusals > 0 && sessions.size() < 400) {
      const auto start = std::chrono::steady_clock::now();
      auto session = Connect();
      EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(2));
      if (session.ok()) {
        sessions.push_back(*std::move(session));
      } else {
        --refusals;
      }
    }
    EXPECT_EQ(refusals, 0) << "nothing was exhausted";
    return sessions;
  }
  double CpuSeconds() const {
    std::ifstream stat("/proc/" + std::to_string(daemon_.pid()) + "/stat");
    std::string text;
    std::getline(stat, text);
    std::istringstream rest(text.substr(text.rfind(')') + 2));
    std::string field;
    uint64_t user = 0, system = 0;
    for (int i = 3; i < 14; ++i) rest >> field;
    rest >> user >> system;
    return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }

  rlimit old_ = {};
};

TEST_F(Exhaustion, OfFileDescriptorsRefusesNewcomersAndKeepsNobodyBusy) {
  e2e::SignalProcess(innocent_.pid(), SIGSTOP);
  Limit(RLIMIT_NOFILE, static_cast<uint64_t>(before_.files) + 60);
  auto sessions = ConnectUntilRefused(20);
  EXPECT_GT(sessions.size(), 2u);
  const double before = CpuSeconds();
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 20; ++i) waiting.push_back(ConnectTo(socket()));
  std::this_thread::sleep_for(seconds(1));
  EXPECT_LT(CpuSeconds() - before, 0.3) << "it spins";
  e2e::SignalProcess(innocent_.pid(), SIGCONT);
  innocent_.ExpectUnharmed();
  sessions.clear(), waiting.clear();
  Unlimit(RLIMIT_NOFILE);
  EXPECT_TRUE(e2e::Within(seconds(10), [&] { return Connect().ok(); }));
  ExpectAsBefore();
}

TEST_F(Exhaustion, OfFileDescriptorsRefusesMemoryAndTheSessionGoesOn) {
  if (IsRemote()) GTEST_SKIP() << "a network has no memory in common";
  HostileSession guest(socket(), "guest");
  Limit(RLIMIT_NOFILE, 3);  // none of them is free
  const UniqueFd memory = *transport::CreateHostMemory(1 << 20);
  const transport::Request message = {transport::RequestKind::kShareMemory, 1, 1 << 20, 1};
  const int fd = memory.get();
  const auto share = [&] {
    transport::Answer answer = {};
    EXPECT_TRUE(transport::SendMessage(guest.socket(), std::as_bytes(std::span(&message, 1)), {&fd, 1}).ok());
    EXPECT_TRUE(
        transport::ReceiveMessage(guest.socket(), std::as_writable_bytes(std::span(&answer, 1))).ok());
    return answer;
  };
  EXPECT_EQ(share().code, static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
  guest.Put(Nop());
  EXPECT_TRUE(guest.Settle().ok());
  innocent_.ExpectUnharmed();
  Unlimit(RLIMIT_NOFILE);
  EXPECT_EQ(share().code, 0u);
}

TEST_F(Exhaustion, OfAddressSpaceRefusesNewcomersAndAllocations) {
  auto hostile = std::make_unique<HostileSession>(socket());
  std::ifstream statm("/proc/" + std::to_string(daemon_.pid()) + "/statm");
  uint64_t pages = 0;
  statm >> pages;
  Limit(RLIMIT_AS, pages * transport::kPageBytes + 100 * kMiB);
  auto sessions = ConnectUntilRefused(20);
  for (uint32_t id = 1; id <= 20; ++id) hostile->Put(Allocate({id, 1}, 64 << 20));
  EXPECT_THAT(TextOf(hostile->Settle()), HasSubstr("memory"));
  innocent_.ExpectUnharmed();
  sessions.clear();
  Unlimit(RLIMIT_AS);
  EXPECT_TRUE(e2e::Within(seconds(10), [&] { return Connect().ok(); }));
  hostile.reset();
  ExpectAsBefore({.resident = 16 * kMiB, .mappings = 128});
}

TEST_F(Exhaustion, OfThreadsIsNoClientsToCause) {
  if (IsRemote()) GTEST_SKIP() << "a gateway has fewer places";
  std::vector<std::unique_ptr<HostileSession>> sessions;
  for (int i = 0; i < 300; ++i) {
    sessions.push_back(std::make_unique<HostileSession>(socket()));
    sessions.back()->Put(CreateQueue(1));
    sessions.back()->Put(Nop());
    ASSERT_TRUE(sessions.back()->Settle().ok());
  }
  EXPECT_LE(Vitals::Of(daemon_).threads, before_.threads + 2);
  innocent_.ExpectUnharmed();
  sessions.clear();
  ExpectAsBefore({.resident = 32 * kMiB, .mappings = 128});
}

TEST_F(Exhaustion, OfDeviceMemoryIsAnErrorOfWhoWantsMore) {
  auto hostile = std::make_unique<HostileSession>(socket());
  uint32_t id = 0;
  std::string text;
  while (text.empty() && id < 100'000) {
    hostile->Put(Allocate({++id, 1}, 256 << 20));
    if (id % 16 == 0) text = TextOf(hostile->Settle());
  }
  EXPECT_THAT(text, HasSubstr("XPUD out of memory"));
  innocent_.ExpectUnharmed();
  hostile.reset();
  ExpectAsBefore();
}

}  // namespace
}  // namespace xpud::isolation
