#include "daemon/records/memory_history.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace xpud::records {
namespace {

const Tenant kOne = {1000}, kOther = Tenant::OfClaim("web");

memory::DeviceMemory Usage(std::map<Tenant, memory::TenantMemory> tenants, uint64_t host = 0) {
  memory::DeviceMemory usage;
  usage.tenants = std::move(tenants);
  usage.host_bytes = host;
  return usage;
}

// "10 uid:1000 1 2 3 4", or of the device "10 5".
std::vector<std::string> TextOf(const MemoryHistory& history) {
  std::vector<std::string> all;
  for (uint64_t i = history.first(); i < history.added(); ++i) {
    const MemorySample& sample = history[i];
    std::string& text = all.emplace_back(std::to_string(sample.time_ns));
    if (sample.tenant == nullptr) {
      text += " " + std::to_string(sample.bytes.host);
      continue;
    }
    text += " " + *sample.tenant;
    for (const uint64_t bytes :
         {sample.bytes.on_device, sample.bytes.moved_out, sample.bytes.shared, sample.bytes.saved})
      text += " " + std::to_string(bytes);
  }
  return all;
}

using Texts = std::vector<std::string>;

TEST(MemoryHistoryTest, HasASampleWhereAValueHasChanged) {
  MemoryHistory history;
  const memory::TenantMemory one = {.on_device = 1, .moved_out = 2, .shared = 3, .saved = 4};
  history.Add(10, Usage({{kOne, one}, {kOther, {}}}));
  history.Add(20, Usage({{kOne, one}, {kOther, {}}}));
  history.Add(30, Usage({{kOne, one}, {kOther, {.moved_out = 7}}}, 7));
  memory::TenantMemory moves = one;
  ++moves.cached;
  ++moves.moved.in;  // neither is in samples
  history.Add(40, Usage({{kOne, moves}, {kOther, {.on_device = 7}}}, 7));
  EXPECT_EQ(TextOf(history),
            (Texts{"10 uid:1000 1 2 3 4", "30 claim:web 0 7 0 0", "30 7", "40 claim:web 7 0 0 0"}));
}

TEST(MemoryHistoryTest, ATenantThatHasGoneHasNothing) {
  MemoryHistory history;
  history.Add(10, Usage({{kOne, {.on_device = 5}}, {kOther, {}}}));
  history.Add(20, Usage({}));
  history.Add(30, Usage({}));
  history.Add(40, Usage({{kOne, {.on_device = 5}}}));
  EXPECT_EQ(TextOf(history), (Texts{"10 uid:1000 5 0 0 0", "20 uid:1000 0 0 0 0", "40 uid:1000 5 0 0 0"}));
}

TEST(MemoryHistoryTest, BeginsAnewWithOtherNumbers) {
  MemoryHistory history;
  history.Add(10, Usage({{kOne, {.on_device = 5}}}, 9));
  history.Clear();
  EXPECT_EQ(history.first(), 2u);
  EXPECT_EQ(history.added(), 2u);
  history.Add(20, Usage({{kOne, {.on_device = 5}}}, 9));
  EXPECT_EQ(TextOf(history), (Texts{"20 uid:1000 5 0 0 0", "20 9"})) << "nothing is known of what was";
}

TEST(MemoryHistoryTest, KeepsTheNewestAndWhatDoesNotChange) {
  MemoryHistory history;
  constexpr uint64_t kAdded = 3 * MemoryHistory::kMaxSamples;
  for (uint64_t i = 1; i <= kAdded; ++i)
    history.Add(i, Usage({{kOne, {.on_device = i}}, {kOther, {.on_device = 3}}}, 9));
  EXPECT_EQ(history.added() - history.first(), MemoryHistory::kMaxSamples);
  size_t of_other = 0, of_device = 0;
  for (uint64_t i = history.first(); i < history.added(); ++i) {
    of_device += history[i].tenant == nullptr;
    of_other += history[i].tenant != nullptr && *history[i].tenant == "claim:web";
  }
  EXPECT_EQ(of_other, 8u);
  EXPECT_EQ(of_device, 8u);
  EXPECT_EQ(history[history.added() - 1].bytes.on_device, kAdded);
}

// Each has a sample of its own, and then all are old at once.
TEST(MemoryHistoryTest, ManyTenantsThatDoNotChangeLeaveRoom) {
  MemoryHistory history;
  std::map<Tenant, memory::TenantMemory> tenants;
  for (uint32_t uid = 0; uid < 3000; ++uid) tenants[{uid}] = {.on_device = 1};
  for (uint64_t i = 1; i <= 100; ++i) history.Add(i, Usage(tenants, i));
  EXPECT_EQ(history.added(), 3100u);
}

}  // namespace
}  // namespace xpud::records
