// Clients of one claim that keep the compiler of loop kernels busy: with kernels without end, called or
// compiled ahead of calls that never come, and with kernels that take LLVM long, or for ever. A client of
// another claim has its kernels compiled beside them. And a compiler that is killed.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "proto/base/clock.h"
#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"
#include "sdk/control/client.h"
#include "tests/conformance/isolation/commands.h"
#include "tests/conformance/isolation/isolation_test.h"
#include "tests/e2e/signal_process.h"

namespace xpud::isolation {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr wire::Handle kResult = {1, 1}, kInput = {2, 1};
constexpr uint64_t kElements = 16;
// What the compiler's hang or another's kernels may delay a client by, on a busy machine. It would be 10 s.
constexpr double kMaxDelaySeconds = 4;

// A number that makes kernels other ones than those of earlier runs, which are on disk.
double Fresh() {
  static const double number = std::random_device()() % (1 << 23);
  return number;
}

// A chain of `length` functions with a constant of its own.
std::string Chain(int number, int length, loops::Function function) {
  loops::testing::BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  constexpr auto kType = loops::DType::kFloat32;
  uint32_t x = b.Call(loops::Function::add, kType, b.Load(0, i), b.Real(number));
  x = b.Call(loops::Function::add, kType, x, b.Real(Fresh()));
  for (int n = 0; n < length; ++n) x = b.Call(function, kType, x);
  b.Store(1, i, x);
  return loops::Encode({.operands = {{kType, loops::Role::kRead}, {kType, loops::Role::kWritten}},
                        .sizes = 1,
                        .bodies = {b.body}});
}
std::string Quick(int number) { return Chain(number, 1, loops::Function::neg); }
// It takes LLVM longer than it may.
std::string Heavy(int number) { return Chain(number, 4000, loops::Function::lgamma); }

std::vector<std::byte> CallOf(uint32_t kernel) {
  const View out = TensorView(kResult, {kElements}), in = TensorView(kInput, {kElements});
  const std::vector<ops::Number> attributes = {ops::Number::Integer(kernel), ops::Number::Integer(1),
                                               ops::Number::Integer(kElements)};
  const uint16_t lists[] = {1, 1};
  return Execute(ops::RowOf("xpud::loop"), ops::DType::kFloat32, {&out, 1}, {&in, 1}, attributes, lists);
}

// A client that defines kernels and calls each once.
class Definer : public HostileSession {
 public:
  explicit Definer(const std::string& address) : HostileSession(address, "definer") {
    for (const wire::Handle buffer : {kResult, kInput}) {
      Put(Allocate(buffer, kElements * sizeof(float)));
      Put(UploadInline(buffer, 0, std::vector<std::byte>(kElements * sizeof(float))));
    }
  }
  void PutKernel(const std::string& bytes) {
    Put(DefineKernel(1, bytes));
    Put(CallOf(1));
    Put(ForgetKernel(1));
  }
  // Returns the kernel's error.
  absl::Status Run(const std::string& bytes) {
    PutKernel(bytes);
    return Settle(seconds(60));
  }
};

std::string FieldOf(int pid, const std::string& field) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":\t")) return line.substr(field.size() + 2);
  return "";
}

std::vector<int> ChildrenNamed(int parent, const std::string& name) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = static_cast<int>(std::strtol(entry.path().filename().c_str(), nullptr, 10));
    if (pid > 0 && FieldOf(pid, "Name") == name && FieldOf(pid, "PPid") == std::to_string(parent))
      found.push_back(pid);
  }
  return found;
}

double SecondsSince(uint64_t began_ns) { return static_cast<double>(NowNs() - began_ns) / 1e9; }

class Compiles : public Isolation {
 protected:
  void SetUp() override {
    if (IsRemote()) GTEST_SKIP() << "doors are sockets of this machine";
  }
  control::Client Operator() const { return *control::Client::Connect(daemon_.socket()); }
  // Returns the door of a new claim.
  std::string Claim(const std::string& key) const {
    v1::Claim claim;
    claim.set_key(key);
    claim.set_class_("interactive");
    EXPECT_TRUE(Operator().CreateClaim(claim).ok());
    return daemon_.directory() + "/claims/" + key + "/xpud.sock";
  }
  v1::GetStatusResponse Status() const { return *Operator().GetStatus(); }
  uint64_t CompileNs(const std::string& name) const {
    const v1::GetStatusResponse status = Status();
    for (const v1::TenantTotal& tenant : status.tenants())
      if (tenant.tenant() == name) return tenant.compile_ns();
    return 0;
  }
  // The seconds that a client waits for each of some kernels.
  double LongestWait(const std::string& door, int first) const {
    Definer client(door);
    double longest = 0;
    for (int i = 0; i < 10; ++i) {
      const uint64_t began = NowNs();
      const absl::Status status = client.Run(Quick(first + i));
      EXPECT_TRUE(status.ok()) << status;
      longest = std::max(longest, SecondsSince(began));
    }
    return longest;
  }
  // The process that makes a fork for each kernel; 0 while it is replaced.
  int Compiler() const { return Status().daemon().compiler().pid(); }
  // Waits for its end: what it has just received is lost with it.
  static void Kill(int pid) {
    e2e::SignalProcess(pid, SIGKILL);
    EXPECT_TRUE(e2e::Within(seconds(10), [&] { return !IsAlive(pid); }));
  }
  std::optional<int> Fork() const {
    const auto forks = ChildrenNamed(Compiler(), "xpud-compile");
    return forks.empty() ? std::nullopt : std::optional(forks[0]);
  }
};

TEST_F(Compiles, AFloodOfKernelsDelaysAnotherClaimLittle) {
  const std::string flood = Claim("flood"), other = Claim("other");
  std::vector<std::unique_ptr<Definer>> sessions;
  int number = 0;
  for (int s = 0; s < 4; ++s) {
    sessions.push_back(std::make_unique<Definer>(flood));
    for (int i = 0; i < 200; ++i) sessions.back()->PutKernel(Chain(++number, 50, loops::Function::tanh));
    sessions.back()->Publish();
  }
  const double longest = LongestWait(other, 100000);
  std::printf("[ figures  ] beside a flood of kernels, one waits for at most %.0f ms\n", 1e3 * longest);
  EXPECT_LT(longest, kMaxDelaySeconds);
  uint64_t pending = 0;
  const v1::GetStatusResponse status = Status();
  for (const v1::Session& session : status.sessions()) {
    if (session.claim() == "flood") pending += session.kernels_pending();
  }
  EXPECT_GE(pending, 1u);
  // A compilation is charged when it is done, which may be after all of the other's.
  for (const char* const tenant : {"claim:flood", "claim:other"})
    EXPECT_TRUE(e2e::Within(seconds(10), [&] { return CompileNs(tenant) > 0; })) << tenant;
  sessions.clear();
  innocent_.ExpectUnharmed();
}

TEST_F(Compiles, AFloodOfKernelsThatAreNeverCalledIsBoundedAndDelaysAnotherClaimLittle) {
  constexpr uint64_t kMaxPrepared = 128;  // of a session
  const std::string flood = Claim("prepares"), other = Claim("calls");
  auto ended = std::make_unique<Definer>(flood);
  Definer& hostile = *ended;
  Definer same_claim(flood);
  int number = 0;
  const auto prepare = [&](uint64_t kernels) {
    for (uint64_t i = 0; i < kernels; ++i) {
      hostile.Put(DefineKernel(1, Chain(++number, 50, loops::Function::tanh)));
      hostile.Put(PrepareKernel(1, {kElements}, {kElements, kElements}));
      hostile.Put(ForgetKernel(1));
    }
  };
  prepare(4 * kMaxPrepared);
  EXPECT_TRUE(hostile.Settle().ok()) << "it waits for none of them";
  uint64_t pending = 0;
  const v1::GetStatusResponse status = Status();
  for (const v1::Session& session : status.sessions())
    if (session.claim() == "prepares") pending += session.kernels_pending();
  EXPECT_GE(pending, 1u);
  EXPECT_LE(pending, kMaxPrepared);
  const double longest = LongestWait(other, 300000);
  std::printf("[ figures  ] beside a flood of kernels that are never called, one waits for at most %.0f ms\n",
              1e3 * longest);
  EXPECT_LT(longest, kMaxDelaySeconds);
  // What a session of the same claim calls comes before what another one's calls may need.
  const uint64_t began = NowNs();
  EXPECT_TRUE(same_claim.Run(Quick(400000)).ok());
  EXPECT_LT(SecondsSince(began), kMaxDelaySeconds);
  EXPECT_FALSE(hostile.closed());
  ended.reset();
  EXPECT_TRUE(e2e::Within(seconds(10), [&] { return Status().daemon().compiler().waiting() == 0; }))
      << "what waited for its calls is not compiled";
  innocent_.ExpectUnharmed();
}

TEST_F(Compiles, KernelsThatTakeForEverDelayAnotherClaimLittle) {
  const std::string hostile = Claim("hostile"), other = Claim("other");
  std::vector<std::unique_ptr<Definer>> sessions;
  const auto overdue = [&] { return Status().daemon().compiler().overdue(); };
  for (int s = 0; s < 8; ++s) {
    sessions.push_back(std::make_unique<Definer>(hostile));
    sessions.back()->PutKernel(Heavy(s));
    sessions.back()->Publish();
    if (s == 0) EXPECT_TRUE(e2e::Within(seconds(10), [&] { return overdue() == 1; }));
  }
  EXPECT_TRUE(e2e::Within(seconds(10), [&] { return overdue() == 4; }));
  const double longest = LongestWait(other, 200000);
  std::printf("[ figures  ] beside kernels that take the compiler for ever, one waits for at most %.0f ms\n",
              1e3 * longest);
  EXPECT_LT(longest, kMaxDelaySeconds);
  EXPECT_EQ(Status().daemon().compiler().running(), 4u) << "of one tenant";
  const absl::Status status = sessions[0]->Settle(seconds(60));
  EXPECT_THAT(TextOf(status), ::testing::HasSubstr("longer than the 10 s")) << status;
  EXPECT_FALSE(sessions[0]->closed());
  sessions.resize(1);
  EXPECT_TRUE(sessions[0]->Run(Quick(300000)).ok());
  sessions.clear();
  // Those that nobody waits for are not compiled.
  EXPECT_TRUE(e2e::Within(seconds(30), [&] {
    const v1::Compiler compiler = Status().daemon().compiler();
    return compiler.running() + compiler.waiting() == 0;
  }));
  ExpectAsBefore(kOfKernels);
}

TEST_F(Compiles, ACompilerThatIsKilledIsReplaced) {
  Definer client(daemon_.socket());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Run(Quick(2 * i)).ok());
    const int killed = Compiler();
    ASSERT_GT(killed, 0);
    Kill(killed);
    const uint64_t began = NowNs();
    const absl::Status status = client.Run(Quick(2 * i + 1));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_LT(SecondsSince(began), kMaxDelaySeconds);
    EXPECT_TRUE(e2e::Within(seconds(10), [&] { return Compiler() > 0; }));
    EXPECT_NE(Compiler(), killed);
    EXPECT_EQ(Status().daemon().compiler().replaced(), static_cast<uint64_t>(i) + 1);
  }
  innocent_.ExpectUnharmed();
}

TEST_F(Compiles, ACompilationThatIsKilledFailsItsKernelAloneAndARetryCompilesIt) {
  Definer client(daemon_.socket()), other(Claim("other"));
  const std::string kernel = Heavy(0);
  for (int i = 0; i < 2; ++i) {
    client.PutKernel(kernel);
    client.Publish();
    EXPECT_TRUE(e2e::Within(seconds(10), [&] { return Fork().has_value(); }));
    EXPECT_TRUE(e2e::Within(seconds(10), [&] { return Status().daemon().compiler().overdue() > 0; }));
    if (i == 0) {
      e2e::SignalProcess(*Fork(), SIGKILL);
    } else {  // what the fork does is not lost with its parent
      const int fork = *Fork();
      Kill(Compiler());
      EXPECT_TRUE(other.Run(Quick(i)).ok());
      EXPECT_TRUE(IsAlive(fork));
      e2e::SignalProcess(fork, SIGKILL);
    }
    const absl::Status status = client.Settle(seconds(30));
    EXPECT_THAT(TextOf(status), ::testing::HasSubstr("crashed, or was killed")) << status;
    EXPECT_TRUE(other.Run(Quick(10 + i)).ok());
  }
  EXPECT_TRUE(client.Run(Quick(20)).ok());
  EXPECT_FALSE(client.closed());
  innocent_.ExpectUnharmed();
}

}  // namespace
}  // namespace xpud::isolation
