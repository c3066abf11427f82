#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/histogram.h"
#include "proto/base/mapping.h"
#include "proto/base/out_of_memory.h"
#include "proto/base/stream_copy.h"
#include "proto/base/text.h"
#include "proto/base/unique_fd.h"

namespace xpud {
namespace {

using ::testing::HasSubstr;

TEST(Mapping, TwoMappingsOfOneMemfdShareBytes) {
  auto fd = CreateSealedMemfd("test", 100);
  ASSERT_TRUE(fd.ok()) << fd.status();
  auto writer = Mapping::Map(*fd, 4096, Access::kReadWrite);
  auto reader = Mapping::Map(*fd, 4096, Access::kReadOnly);
  ASSERT_TRUE(writer.ok() && reader.ok());
  writer->data()[7] = std::byte{42};
  EXPECT_EQ(reader->data()[7], std::byte{42});
}

TEST(Mapping, RefusesMoreThanTheMemfdHolds) {
  auto fd = CreateSealedMemfd("test", 4096);
  ASSERT_TRUE(fd.ok());
  const auto mapping = Mapping::Map(*fd, 8192, Access::kReadWrite);
  EXPECT_THAT(mapping.status().message(), HasSubstr("holds 4096 bytes, 8192 are needed"));
}

TEST(Mapping, LackOfMemoryNamesTheLimitOfMappings) {
  const auto mapping = Mapping::MapPrivate(size_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(mapping.status())) << mapping.status();
  EXPECT_THAT(std::string(mapping.status().message()),
              HasSubstr("raise that limit: sysctl vm.max_map_count"));
}

TEST(Mapping, RefusesAMemfdThatCanStillShrink) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(fd.get(), 4096), 0);
  const auto mapping = Mapping::Map(fd, 4096, Access::kReadOnly);
  EXPECT_THAT(mapping.status().message(), HasSubstr("not sealed"));
}

TEST(UniqueFd, ClosesWhatItOwns) {
  int raw[2];
  ASSERT_EQ(pipe(raw), 0);
  UniqueFd read_end(raw[0]);
  {
    UniqueFd write_end(raw[1]);
  }
  char byte;
  EXPECT_EQ(read(read_end.get(), &byte, 1), 0)
      << "the write end must be closed, so that reading finds the end";
}

TEST(StreamCopy, CopiesTheWholeRangeAndNothingElse) {
  constexpr size_t kSize = 512;
  for (size_t target_at = 0; target_at < 65; target_at += 13) {
    for (size_t source_at : {0, 1, 16}) {
      for (size_t bytes : {0, 1, 63, 64, 65, 200}) {
        std::vector<std::byte> source(kSize), target(kSize, std::byte{0xee});
        for (size_t i = 0; i < kSize; ++i) source[i] = static_cast<std::byte>(i % 251);
        std::vector<std::byte> expected = target;
        std::memcpy(expected.data() + target_at, source.data() + source_at, bytes);
        StreamCopy(target.data() + target_at, source.data() + source_at, bytes);
        EXPECT_EQ(target, expected) << target_at << " " << source_at << " " << bytes;
      }
    }
  }
}

TEST(PrintableText, KeepsWhatPeopleRead) {
  EXPECT_EQ(PrintableText("train.py"), "train.py");
  EXPECT_EQ(PrintableText("größe 名前 \U0001F600"), "größe 名前 \U0001F600");
  EXPECT_EQ(PrintableText(""), "");
}

TEST(PrintableText, ShowsWhatATerminalWouldObeyAsQuestionMarks) {
  EXPECT_EQ(PrintableText("a\x1b[2Jb\r\n\x7f"), "a?[2Jb???");
  EXPECT_EQ(PrintableText("\u009b31m"), "?31m") << "the one-character CSI";
  EXPECT_EQ(PrintableText("\u202egpj.exe\u2066\u200f\u2028"), "?gpj.exe???");
}

TEST(PrintableText, IsUtf8WhateverTheBytes) {
  EXPECT_EQ(PrintableText("\xff\xfe ok"), "?? ok");
  EXPECT_EQ(PrintableText("\xc0\xaf"), "??") << "an overlong '/'";
  EXPECT_EQ(PrintableText("\xe0\x80\xaf"), "???");
  EXPECT_EQ(PrintableText("\xed\xa0\x80"), "???") << "half of a surrogate pair";
  EXPECT_EQ(PrintableText("\xf4\x90\x80\x80"), "????") << "beyond Unicode";
  EXPECT_EQ(PrintableText("cut \xe5\x90"), "cut ??");
}

TEST(PrintableText, IsCutBetweenCharacters) {
  EXPECT_EQ(PrintableText("名前", 3), "名");
  EXPECT_EQ(PrintableText("名前", 5), "名");
  EXPECT_EQ(PrintableText("名前", 6), "名前");
}

TEST(OutOfMemory, SaysWhatWasAskedAndWhatThereIs) {
  using Scope = MemoryShortage::Scope;
  const absl::Status device = OutOfMemory(uint64_t{20} << 30, 1, uint64_t{16} << 30,
                                          {Scope::kDevice, uint64_t{16} << 30, uint64_t{15} << 30});
  EXPECT_EQ(
      device.message(),
      "XPUD out of memory. Tried to allocate 20.00 GiB. Device 1 has a total capacity of 16.00 GiB; of the "
      "16.00 GiB that all processes share, 15.00 GiB is in use and 1.00 GiB is free.");
  const absl::Status process =
      OutOfMemory(3 << 20, 0, uint64_t{16} << 30, {Scope::kProcess, 4 << 20, 2 << 20});
  EXPECT_EQ(process.message(),
            "XPUD out of memory. Tried to allocate 3.00 MiB. Device 0 has a total capacity of 16.00 GiB; of "
            "the 4.00 "
            "MiB that this process may hold, 2.00 MiB is in use and 2.00 MiB is free.");
  EXPECT_TRUE(IsOutOfMemory(device) && IsOutOfMemory(process));
}

TEST(OutOfMemory, NamesTheDriversReasonAndNeverLessThanNothing) {
  EXPECT_THAT(
      OutOfMemory(1, 0, 1000, {MemoryShortage::Scope::kUser, 1000, 2000}, "no pages").message(),
      HasSubstr(
          "that this user's processes may hold, 1.95 KiB is in use and 0 bytes is free. The driver says: "
          "no pages"));
  EXPECT_FALSE(IsOutOfMemory(absl::ResourceExhaustedError("at most 64 queues")));
  EXPECT_FALSE(IsOutOfMemory(absl::OkStatus()));
}

TEST(HistogramTest, BoundsBelongToTheirClass) {
  for (size_t i = 0; i < Histogram::kBounds; ++i) {
    Histogram histogram;
    histogram.Add(Histogram::BoundNs(i), 3);
    histogram.Add(Histogram::BoundNs(i) + 1);
    EXPECT_EQ(histogram.counts()[i], 3u) << i;
    EXPECT_EQ(histogram.counts()[i + 1], 1u) << i;
    EXPECT_EQ(histogram.sum_ns(), 4 * Histogram::BoundNs(i) + 1);
  }
  Histogram histogram;
  histogram.Add(0);
  histogram.Add(UINT64_MAX);
  EXPECT_EQ(histogram.counts().front(), 1u);
  EXPECT_EQ(histogram.counts().back(), 1u);
}

}  // namespace
}  // namespace xpud
