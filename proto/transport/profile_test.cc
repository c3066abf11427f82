#include "proto/transport/profile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <tuple>

#include "proto/base/mapping.h"

namespace xpud::transport {
namespace {

SessionProfile Some() {
  SessionProfile profile;
  profile.names = {"", "first", "second"};
  profile.overwritten = 9;
  for (uint32_t i = 0; i < 3; ++i) {
    profile.records.push_back({.sequence = 10 + i,
                               .decoded_ns = 20,
                               .began_ns = 30,
                               .ended_ns = 40,
                               .device_ns = 5,
                               .bytes = 6,
                               .kernel = i,
                               .kind = wire::CommandKind::kExecute,
                               .row = 7,
                               .launches = 1,
                               .queue = 2,
                               .refused = 0});
  }
  return profile;
}

auto FieldsOf(const ProfileRecord& record) {
  return std::tuple(record.sequence, record.decoded_ns, record.began_ns, record.ended_ns, record.device_ns,
                    record.bytes, record.kernel, record.kind, record.row, record.launches, record.queue,
                    record.refused);
}

TEST(ProfileTest, ArrivesAsItWasSent) {
  for (const SessionProfile& sent : {Some(), SessionProfile{{}, {""}, 0}}) {
    const absl::StatusOr<UniqueFd> memory = WriteProfile(sent);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const absl::StatusOr<SessionProfile> got = ReadProfile(*memory);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->names, sent.names);
    EXPECT_EQ(got->overwritten, sent.overwritten);
    ASSERT_EQ(got->records.size(), sent.records.size());
    for (size_t i = 0; i < sent.records.size(); ++i)
      EXPECT_EQ(FieldsOf(got->records[i]), FieldsOf(sent.records[i]));
  }
}

// Each number of the header, and a kernel's number, is wrong in turn.
TEST(ProfileTest, AWrongOneIsRefused) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const size_t kernel_at = sizeof(ProfileHeader) + offsetof(ProfileRecord, kernel);
  const std::pair<size_t, uint64_t> changes[] = {{offsetof(ProfileHeader, commands), 1 << 20},
                                                 {offsetof(ProfileHeader, commands), kMost},
                                                 {offsetof(ProfileHeader, commands), kMost / 64 + 1},
                                                 {offsetof(ProfileHeader, names), 0},
                                                 {offsetof(ProfileHeader, names), 4},
                                                 {offsetof(ProfileHeader, name_bytes), 3},
                                                 {offsetof(ProfileHeader, name_bytes), kMost},
                                                 {kernel_at, 3}};
  for (const auto& [offset, value] : changes) {
    const UniqueFd memory = *WriteProfile(Some());
    const Mapping mapping = *Mapping::Map(memory, 4096, Access::kReadWrite);
    std::memcpy(mapping.data() + offset, &value, offset == kernel_at ? 4 : 8);
    EXPECT_TRUE(absl::IsInternal(ReadProfile(memory).status())) << offset << " " << value;
  }
  EXPECT_TRUE(absl::IsInternal(ReadProfile(UniqueFd()).status()));
}

}  // namespace
}  // namespace xpud::transport
