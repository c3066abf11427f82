// A client that requests every kernel of a daemon that keeps few: evicted kernels are compiled again, while
// others have taken their table entries.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/conformance/isolation/isolation_test.h"
#include "tests/conformance/isolation/op_calls.h"

namespace xpud::isolation {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kLimit = 256, kMappingsOfAKernel = 2;
constexpr int kTimes = 100;  // enough for an executor to make recordings
constexpr uint64_t kZerosAt = kOperandBytes, kResultAt = 2 * kOperandBytes;  // in staging

// Ops of the table with the types that they support. Every fourth one is enough; in full, every other.
std::vector<Call> AllCalls() {
  std::vector<Call> calls;
  const int step = InFull() ? 2 : 4;
  int seen = 0;
  for (const ops::Row& row : ops::kRows) {
    if (row.family == ops::Family::kTest || row.family == ops::Family::kMatmul) continue;
    for (int type = 0; type < ops::kNumDTypes; ++type) {
      const auto dtype = static_cast<ops::DType>(type);
      if (ops::Contains(row.dtypes, dtype) && ++seen % step == 0) calls.push_back(RightCall(row, dtype));
    }
  }
  return calls;
}

int64_t MappingsOf(int pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

class Kernels : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  Kernels()
      : daemon_(Flags(), e2e::KernelFiles::kOwn),
        innocent_(daemon_.socket()),
        session_(daemon_.socket(), "greedy") {
    PutOperands(session_);
    std::fill_n(session_.staging().begin(), kOperandBytes, std::byte{0x3f});  // no zero of any type
  }
  static std::vector<std::string> Flags() {
    std::vector<std::string> flags = GetParam();
    flags.insert(flags.end(), {"--kernel-limit", std::to_string(kLimit)});
    return flags;
  }
  // Returns the contents of its first output's buffer, or the error.
  std::pair<Bytes, std::string> ResultOf(const Call& call) {
    for (uint32_t id = 1; id <= call.outputs.size() + call.inputs.size(); ++id) {
      const bool values = id > call.outputs.size() && call.row->family == ops::Family::kMap;
      session_.Put(Upload({id, 1}, 0, {values ? 0 : kZerosAt, 0, 0}, kOperandBytes));
    }
    for (int i = 0; i < kTimes; ++i) session_.Put(call.bytes());
    session_.Put(Download({1, 1}, 0, {kResultAt, 0, 0}, kOperandBytes));
    const std::string error = TextOf(session_.Settle());
    (void)session_.Settle();
    const auto result = session_.staging().subspan(kResultAt, kOperandBytes);
    return {Bytes(result.begin(), result.end()), error};
  }
  // Counts mappings of the process that has the kernels' code: the daemon, or its executor.
  int64_t Mappings() const {
    const int64_t executor = daemon_.StatusOf("executor_pid");
    return MappingsOf(executor > 0 ? static_cast<int>(executor) : daemon_.pid());
  }

  e2e::DaemonProcess daemon_;
  Innocent innocent_;
  HostileSession session_;
};

TEST_P(Kernels, ThatAreGivenUpAreMadeAgainAndGiveTheSameResults) {
  const std::vector<Call> calls = AllCalls();
  ASSERT_GT(static_cast<int64_t>(calls.size()), 3 * kLimit / 2);
  const int64_t before = Mappings();
  std::vector<std::pair<Bytes, std::string>> results;
  for (const Call& call : calls) results.push_back(ResultOf(call));
  EXPECT_GT(daemon_.StatusOf("kernels_compiled"), 3 * kLimit / 2);
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto again = ResultOf(calls[i]);
    EXPECT_EQ(again.second, results[i].second);
    ASSERT_TRUE(again.first == results[i].first) << calls[i].row->aten << ", call " << i;
  }
  const int64_t grown = Mappings() - before;
  std::printf("[ figures  ] %zu calls; mappings %+d\n", calls.size(), static_cast<int>(grown));
  EXPECT_LE(grown, kMappingsOfAKernel * kLimit);
  ASSERT_FALSE(session_.closed());
  innocent_.ExpectUnharmed();
}

INSTANTIATE_TEST_SUITE_P(Devices, Kernels,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"--executor", "process"}));

}  // namespace
}  // namespace xpud::isolation
