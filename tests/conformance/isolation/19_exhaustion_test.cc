// A daemon without file descriptors, threads, address space or places for clients: new clients are refused,
// and existing ones continue.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/transport/host_memory.h"
#include "sdk/client/connect.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"
#include "tests/conformance/isolation/thread_limit.h"
#include "xpud/tensor.h"

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
        refusal_ = TextOf(session.status());
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
  std::string refusal_;  // the last one
};

TEST_F(Exhaustion, OfFileDescriptorsRefusesNewcomersAndKeepsNobodyBusy) {
  e2e::SignalProcess(innocent_.pid(), SIGSTOP);
  Limit(RLIMIT_NOFILE, static_cast<uint64_t>(before_.files) + 60);
  auto sessions = ConnectUntilRefused(20);
  EXPECT_GT(sessions.size(), 2u);
  if (!IsRemote())
    EXPECT_THAT(refusal_, HasSubstr(absl::StrCat("xpud (pid ", daemon_.pid(), ") has reached its limit")));
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

// Each flight dump, kernel, view and large launch once needed a thread that was started for it.
class WithoutThreads : public ThreadLimit, public Isolation {
 protected:
  explicit WithoutThreads(const std::vector<std::string>& flags = {}) : Isolation(FlagsWith(flags)) {
    StopInheriting();
  }
  ~WithoutThreads() override { std::filesystem::remove_all(folder_); }

  static std::vector<std::string> FlagsWith(std::vector<std::string> flags) {
    char pattern[] = "/tmp/xpud-flights-XXXXXX";
    folder_ = mkdtemp(pattern);
    flags.insert(flags.end(), {"--flight-dumps", folder_});
    return flags;
  }
  static bool HasDump() { return !std::filesystem::is_empty(folder_); }
  static void Compute(HostileSession& session, const ops::Row& row) {
    session.Put(RightCall(row).bytes());
    EXPECT_EQ(TextOf(session.Settle()), "");
  }

  inline static std::string folder_;
};

TEST_F(WithoutThreads, TheDaemonServesAndRefusesViewsOnly) {
  if (IsRemote()) GTEST_SKIP() << "a view is of this machine";
  Set(0);
  {
    HostileSession guest(socket(), "guest");  // a new session
    PutOperands(guest);
    for (const ops::Row& row : ops::kRows) {  // new kernels
      if (row.family == ops::Family::kReduce || row.family == ops::Family::kSort) Compute(guest, row);
    }
    const auto view = client::ConnectView(socket(), seconds(10));
    EXPECT_TRUE(absl::IsResourceExhausted(view.status())) << view.status();
    EXPECT_THAT(TextOf(view.status()), HasSubstr("ulimit -u"));
    guest.Put(std::vector<std::byte>(64, std::byte{0xff}));
    guest.Fate();
    EXPECT_TRUE(e2e::Within(seconds(10), HasDump));
  }
  auto session = daemon_.Connect();  // a large launch, for which there are no workers
  const Queue queue = session->DefaultQueue(0);
  const std::vector<float> ones(1 << 20, 1.0F);
  const auto large = Tensor::FromHost(queue, std::span(ones), {1 << 10, 1 << 10});
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_TRUE(Matmul(*large, *large).ok());
  EXPECT_TRUE(queue.Synchronize().ok());
  innocent_.ExpectUnharmed();
  EXPECT_TRUE(WasReached());
  Remove();
  EXPECT_TRUE(client::ConnectView(socket(), seconds(10)).ok());
  session.reset();
  innocent_.ExpectUnharmed();
}

// However many threads a start gets: it serves, or ends with an error that says what is missing.
TEST(TooFewThreads, StopAStartWithAReason) {
  for (const std::string flags : {"--device cpu", "--device cpu --executor process --standby-executor"}) {
    ThreadLimit limit;
    char pattern[] = "/tmp/xpud-start-XXXXXX";
    const std::string folder = mkdtemp(pattern);
    int status = 1, threads = 0;
    for (; status != 0 && threads < 64; ++threads) {
      limit.Set(threads);
      const std::string command = absl::StrCat(
          "timeout -s KILL 30 ", e2e::DaemonBinary(), " --socket ", folder, "/xpud.sock --cache-dir ", folder,
          "/cache --flight-dumps ", folder, "/dumps --metrics-listen unix:", folder,
          "/metrics.sock --exit-when-idle 0 ", flags, " 2>", folder, "/log");
      status = WEXITSTATUS(std::system(command.c_str()));
      std::ifstream file(folder + "/log");
      const std::string log{std::istreambuf_iterator<char>(file), {}};
      if (status == 0) break;
      ASSERT_EQ(status, 1) << "with " << threads << " threads: " << log;
      ASSERT_THAT(log, HasSubstr("ulimit -u")) << "with " << threads << " threads";
    }
    EXPECT_EQ(status, 0);
    EXPECT_GT(threads, 4);
    std::filesystem::remove_all(folder);
  }
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
