// The guarantees that executor processes need: memory outlives the process that made it, however it ended,
// and the next process can map it at the same address. The parent holds the fds and opens no device.
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "drivers/tests/child_process.h"
#include "drivers/tests/number.h"
#include "drivers/tests/placement.h"
#include "drivers/tests/stand_in_executor.h"
#include "drivers/tests/stopwatch.h"
#include "gtest/gtest.h"

namespace xpud::drivers {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

uint64_t SpanOf(uint64_t size) {
  return (size + XPUD_MEM_ADDRESS_UNIT - 1) / XPUD_MEM_ADDRESS_UNIT * XPUD_MEM_ADDRESS_UNIT;
}

class ReplacementTest : public ::testing::TestWithParam<const char*> {
 protected:
  bool IsCpu() const { return std::strcmp(GetParam(), "cpu") == 0; }

  // Returns false, with a reason, if there is no such device.
  bool Start(ChildProcess& child) {
    Message order = {};
    order.order = Order::kStart;
    std::snprintf(order.text, sizeof(order.text), "%s", GetParam());
    started_ = child.Do(order);
    if (started_.result == ZE_RESULT_SUCCESS) return true;
    EXPECT_EQ(started_.result, ZE_RESULT_ERROR_UNINITIALIZED);
    return false;
  }
  static Message Of(Order order, uint64_t address, uint64_t size, uint64_t seed = 0) {
    Message message = {};
    message.order = order;
    message.address = address;
    message.size = size;
    message.seed = seed;
    return message;
  }
  // Allocates memory, writes words to it, and returns its fd.
  UniqueFd Make(ChildProcess& child, uint64_t address, uint64_t size, uint64_t seed) {
    made_ = child.Do(Of(Order::kAllocate, address, size));
    EXPECT_EQ(made_.result, ZE_RESULT_SUCCESS) << "allocation of " << size / kMiB << " MiB";
    EXPECT_EQ(made_.address, address);
    UniqueFd fd = child.TakeFd();
    EXPECT_TRUE(fd.valid());
    EXPECT_EQ(child.Do(Of(Order::kWrite, address, size, seed)).result, ZE_RESULT_SUCCESS);
    return fd;
  }
  void ExpectWords(ChildProcess& child, const UniqueFd& fd, uint64_t address, uint64_t size, uint64_t seed) {
    imported_ = child.Do(Of(Order::kImport, address, size), fd.get());
    ASSERT_EQ(imported_.result, ZE_RESULT_SUCCESS) << "import of " << size / kMiB << " MiB";
    ASSERT_EQ(imported_.address, address);
    const Message checked = child.Do(Of(Order::kCheck, address, size, seed));
    EXPECT_EQ(checked.result, ZE_RESULT_SUCCESS);
    EXPECT_EQ(checked.value, 0u) << "words that differ";
  }
  void Print(const char* what, double ms) const {
    std::printf("FIGURE %s: %s %.2f ms\n", GetParam(), what, ms);
  }
  // A process allocates memory and dies by `death`; the next process maps it.
  void DieAndReplace(Order death, const char* name);

  Message started_{};
  Message made_{};
  Message imported_{};
};

void ReplacementTest::DieAndReplace(Order death, const char* name) {
  const std::string what = std::string("after ") + name + ": ";
  UniqueFd fd;
  double reaped = 0;
  {
    ChildProcess first;
    if (!Start(first)) GTEST_SKIP() << started_.text;
    fd = Make(first, kPlaceForDevice, 64 * kMiB, 17);
    const Stopwatch watch;
    const Message died = first.Do(Of(death, 0, 0));
    EXPECT_EQ(died.result, death == Order::kSpin ? ZE_RESULT_NOT_READY : ZE_RESULT_ERROR_DEVICE_LOST);
    if (death == Order::kFault) Print((what + "until the loss is answered").c_str(), watch.Ms());
    first.Kill();
    first.Reap(reaped);
  }
  Print((what + "kill and reap").c_str(), reaped);
  const Stopwatch whole;
  ChildProcess second;
  ASSERT_TRUE(Start(second));
  ASSERT_NO_FATAL_FAILURE(ExpectWords(second, fd, kPlaceForDevice, 64 * kMiB, 17));
  Print((what + "exec to words checked").c_str(), whole.Ms());
  Print((what + "zeInit").c_str(), started_.ms[0]);
  Print((what + "context").c_str(), started_.ms[1]);
  Print((what + "list and module").c_str(), started_.ms[2]);
  Print((what + "import of 64 MiB").c_str(), imported_.ms[0]);
}

TEST_P(ReplacementTest, MemoryOutlivesAKernelThatFaults) { DieAndReplace(Order::kFault, "a fault"); }

TEST_P(ReplacementTest, MemoryOutlivesAKernelThatDoesNotEnd) {
  DieAndReplace(Order::kSpin, "an endless kernel");
}

// On a GPU it is faster to reap first (see drivers/cuda/README.md).
TEST_P(ReplacementTest, TheNextProcessMayStartWhileTheLastOneIsTornDown) {
  ChildProcess first;
  if (!Start(first)) GTEST_SKIP() << started_.text;
  const UniqueFd fd = Make(first, kPlaceForDevice, 64 * kMiB, 23);
  EXPECT_EQ(first.Do(Of(Order::kSpin, 0, 0)).result, ZE_RESULT_NOT_READY);
  const Stopwatch watch;
  first.Kill();
  ChildProcess second;
  ASSERT_TRUE(Start(second));
  Print("from the kill of an endless kernel to the next process's context", watch.Ms());
  double reaped = 0;
  first.Reap(reaped);
  Print("from there until the killed one is reaped", reaped);
  ASSERT_NO_FATAL_FAILURE(ExpectWords(second, fd, kPlaceForDevice, 64 * kMiB, 23));
  Print("from the kill to words checked", watch.Ms());
}

TEST_P(ReplacementTest, AProcessThatIsReadyTakesOverAfterAFault) {
  ChildProcess ready;
  if (!Start(ready)) GTEST_SKIP() << started_.text;
  ChildProcess first;
  ASSERT_TRUE(Start(first));
  const UniqueFd fd = Make(first, kPlaceForDevice, 64 * kMiB, 29);
  EXPECT_EQ(first.Do(Of(Order::kFault, 0, 0)).result, ZE_RESULT_ERROR_DEVICE_LOST);
  const Stopwatch watch;
  first.Kill();
  double reaped = 0;
  first.Reap(reaped);
  ASSERT_NO_FATAL_FAILURE(ExpectWords(ready, fd, kPlaceForDevice, 64 * kMiB, 29));
  Print("from the loss to words checked by a process that was ready", watch.Ms());
}

// 20 processes, one after another; each imports the memory of the one before.
TEST_P(ReplacementTest, EachOfManyProcessesHasTheSameAddress) {
  constexpr int kProcesses = 20;
  UniqueFd fd;
  std::vector<double> contexts;
  std::vector<double> imports;
  std::vector<double> reaps;
  for (uint64_t i = 0; i < kProcesses; ++i) {
    ChildProcess child;
    if (!Start(child)) GTEST_SKIP() << started_.text;
    contexts.push_back(started_.ms[1]);
    if (i == 0) {
      fd = Make(child, kPlaceForDevice, 64 * kMiB, i);
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(ExpectWords(child, fd, kPlaceForDevice, 64 * kMiB, i - 1)) << "process " << i;
    imports.push_back(imported_.ms[0]);
    ASSERT_EQ(child.Do(Of(Order::kWrite, kPlaceForDevice, 64 * kMiB, i)).result, ZE_RESULT_SUCCESS);
    child.Kill();
    double reaped = 0;
    child.Reap(reaped);
    reaps.push_back(reaped);
  }
  std::sort(contexts.begin(), contexts.end());
  std::sort(imports.begin(), imports.end());
  std::sort(reaps.begin(), reaps.end());
  Print("median kill and reap of an idle process", reaps[reaps.size() / 2]);
  Print("median context of 20 processes", contexts[contexts.size() / 2]);
  Print("longest context of 20 processes", contexts.back());
  Print("median import of 64 MiB", imports[imports.size() / 2]);
  Print("longest import of 64 MiB", imports.back());
}

TEST_P(ReplacementTest, ManyAndLargeChunksComeBackWhereTheyWere) {
  std::vector<uint64_t> sizes = {64 * kMiB, 2 * kMiB, 66 * kMiB, 4 * kMiB, 130 * kMiB, 2 * kMiB};
  if (!IsCpu()) sizes.insert(sizes.end(), {1024 * kMiB, 8192 * kMiB, 66 * kMiB});
  std::vector<UniqueFd> fds;
  {
    ChildProcess first;
    if (!Start(first)) GTEST_SKIP() << started_.text;
    uint64_t address = kPlaceForDevice;
    for (const uint64_t size : sizes) {
      fds.push_back(Make(first, address, size, size));
      Print(("allocation of " + std::to_string(size / kMiB) + " MiB").c_str(), made_.ms[0]);
      address += SpanOf(size);
    }
  }
  for (int round = 0; round < 3; ++round) {
    ChildProcess next;
    ASSERT_TRUE(Start(next));
    uint64_t address = kPlaceForDevice;
    for (size_t i = 0; i < sizes.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(ExpectWords(next, fds[i], address, sizes[i], sizes[i]));
      if (round == 0)
        Print(("import of " + std::to_string(sizes[i] / kMiB) + " MiB").c_str(), imported_.ms[0]);
      address += SpanOf(sizes[i]);
    }
  }
}

TEST_P(ReplacementTest, OtherPlacesAreGrantedToo) {
  if (!kOtherPlacesAreLegal) GTEST_SKIP() << "ThreadSanitizer's shadow lies there";
  for (const uint64_t place : {uint64_t{0x180000000000}, uint64_t{0x100080000000}, uint64_t{0x200000000000},
                               uint64_t{0x3f0000000000}}) {
    UniqueFd fd;
    for (int i = 0; i < 3; ++i) {
      ChildProcess child;
      if (!Start(child)) GTEST_SKIP() << started_.text;
      if (i == 0) {
        fd = Make(child, place, 4 * kMiB, place);
      } else {
        ExpectWords(child, fd, place, 4 * kMiB, place);
      }
      if (HasFailure()) FAIL() << std::hex << place;
    }
  }
}

// One process imports and frees the same fd again and again.
TEST_P(ReplacementTest, OneProcessImportsAgainAndAgain) {
  UniqueFd fd;
  {
    ChildProcess first;
    if (!Start(first)) GTEST_SKIP() << started_.text;
    fd = Make(first, kPlaceForDevice, 64 * kMiB, 5);
  }
  ChildProcess second;
  ASSERT_TRUE(Start(second));
  for (int i = 0; i < 20; ++i) {
    ASSERT_NO_FATAL_FAILURE(ExpectWords(second, fd, kPlaceForDevice, 64 * kMiB, 5)) << i;
    EXPECT_EQ(second.Do(Of(Order::kImport, kPlaceForDevice, 64 * kMiB), fd.get()).result,
              ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
    ASSERT_EQ(second.Do(Of(Order::kFree, kPlaceForDevice, 0)).result, ZE_RESULT_SUCCESS);
  }
}

TEST_P(ReplacementTest, SharedMemfdAtAFixedAddressIsReadAndWrittenByTheDevice) {
  constexpr size_t kBytes = 64 * kMiB;
  UniqueFd fd(memfd_create("shared", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), kBytes), 0);
  void* const mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const words = static_cast<uint64_t*>(mapped);
  words[5] = 40;
  for (uint64_t i = 1; i <= 3; ++i) {
    ChildProcess child;
    if (!Start(child)) GTEST_SKIP() << started_.text;
    const Message shared = child.Do(Of(Order::kShare, kPlaceForHost, kBytes, i), fd.get());
    ASSERT_EQ(shared.result, ZE_RESULT_SUCCESS);
    if (!IsCpu()) Print("registration of a memfd of 64 MiB", shared.ms[0]);
    EXPECT_EQ(words[5], 40 + i * (i + 1) / 2);
    EXPECT_EQ(std::atomic_ref<uint64_t>(words[kBytes / 8 - 1]).load(), i);
  }
  munmap(mapped, kBytes);
}

std::string NameOf(const ::testing::TestParamInfo<const char*>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(On, ReplacementTest, ::testing::Values("cpu", "cuda"), NameOf);

}  // namespace
}  // namespace xpud::drivers

int main(int argc, char** argv) {
  using xpud::drivers::ChildProcess;
  if (argc == 3 && std::strcmp(argv[1], ChildProcess::kChildFlag) == 0)
    return xpud::drivers::StandInExecutor::Serve(xpud::drivers::NumberIn(argv[2]));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
