// What keeps a planner and the code it plans for together: packed keys, signatures of arguments, and the
// limits of a launch.
#include "kernels/compiler/arguments.h"

#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/dispatch/kernel_library.h"

namespace xpud::kernels {
namespace {

struct FillKey {
  int rank = 1;
  bool scaled = false;
  ops::DType type = ops::DType::kFloat32;

  void Visit(auto& visit) {
    visit(rank, 4);
    visit(scaled, 1);
    visit(type, 4);
  }
};

template <typename Side>
struct FillArguments {
  typename Side::Pointer out;
  typename Side::Integers sizes;
  typename Side::Integer scale;
  typename Side::Immediate value;

  void Visit(const FillKey& key, auto& visit) {
    visit(out);
    visit.First(sizes, key.rank);
    if (key.scaled) visit(scale);
    visit.Immediate(value, ScalarOf(key.type));
  }
};

class FillSkeleton : public SkeletonOf<FillKey, ops::Family::kTest, FillArguments, 3> {
 public:
  std::string Name(const FillKey&) const override { return "fill"; }
  absl::Status EmitBody(const FillKey& key, const FillArguments<Emitted>& arguments,
                        Emitter& e) const override {
    e.Store(key.type, arguments.out, arguments.sizes[0], arguments.value, ScalarOf(key.type));
    return absl::OkStatus();
  }
};

// Pushes what a kernel of `key` takes.
void Push(const FillKey& key, Launch& launch) {
  const int64_t sizes[] = {3, 4, 5};
  const ops::Number value = ops::Number::Real(2.5);
  FillArguments<Planned> arguments{.out = &launch, .sizes = sizes, .scale = 7, .value = &value};
  PushArguments(key, arguments, launch);
}

TEST(Arguments, AreOfTheTypesAndInTheOrderOfVisit) {
  const FillKey key{.rank = 2, .scaled = true};
  EXPECT_EQ(TypesOf<FillArguments>(key),
            (std::vector{ArgType::kPointer, ArgType::kI64, ArgType::kI64, ArgType::kI64, ArgType::kF32}));
  Launch launch;
  launch.Reset(nullptr, 1);
  Push(key, launch);
  ASSERT_EQ(launch.argument_count(), 5u);
  EXPECT_EQ(*static_cast<const void* const*>(launch.arguments()[0]), &launch);
  for (const auto& [at, expected] : {std::pair<size_t, int64_t>{1, 3}, {2, 4}, {3, 7}})
    EXPECT_EQ(*static_cast<const int64_t*>(launch.arguments()[at]), expected);
  EXPECT_EQ(*static_cast<const float*>(launch.arguments()[4]), 2.5f);
  EXPECT_EQ(launch.signature(), SignatureOf(TypesOf<FillArguments>(key)));
}

TEST(Arguments, OfAnotherKeyAreRefusedAndTheKernelNamed) {
  const std::string directory = ::testing::TempDir() + absl::StrCat("xpud_arguments_", ::getpid());
  const FillSkeleton skeleton;
  const FillKey key{.rank = 2};
  for (const uint64_t from_disk : {0, 1}) {
    KernelCache cache(*KernelCompiler::Create({.cache_directory = directory}), nullptr, nullptr, 16, nullptr);
    ASSERT_TRUE(cache.Start().ok());
    ASSERT_TRUE(cache.Find(skeleton, key).ok());  // null, unless it is ready at once
    cache.WaitForCompiles();
    const Kernel* const kernel = *cache.Find(skeleton, key);
    EXPECT_EQ(cache.counters().disk_hits, from_disk);
    const auto check = [&](const FillKey& planned) {
      LaunchList launches;
      Launch& launch = launches.Add();
      launch.Reset(kernel, 1);
      Push(planned, launch);
      return CheckLaunches(launches, kAnyGroups);
    };
    EXPECT_TRUE(check(key).ok());
    for (const FillKey& wrong : {FillKey{.rank = 1}, FillKey{.rank = 3}, FillKey{.rank = 2, .scaled = true},
                                 FillKey{.rank = 2, .type = ops::DType::kFloat64}}) {
      EXPECT_EQ(check(wrong),
                absl::InternalError("kernel fill: planned with other arguments than it was compiled for"));
    }
  }
  std::filesystem::remove_all(directory);
}

TEST(Arguments, BeyondALaunchsLimitsFailThePlan) {
  const Kernel kernel{.entry = "vendors"};
  LaunchList launches;
  Launch& launch = launches.Add();
  launch.Reset(&kernel, 1);
  for (size_t i = 0; i < Launch::kMaxArguments; ++i) launch.Push(static_cast<uint8_t>(i));
  EXPECT_TRUE(CheckLaunches(launches, kAnyGroups).ok());
  launch.Push(uint8_t{1});
  EXPECT_EQ(launch.argument_count(), Launch::kMaxArguments);
  EXPECT_EQ(CheckLaunches(launches, kAnyGroups),
            absl::InternalError("kernel vendors: more arguments than a launch holds"));
  launch.Reset(&kernel, 1);
  EXPECT_TRUE(CheckLaunches(launches, kAnyGroups).ok());
  launch.Push(std::array<std::byte, Launch::kMaxArgumentBytes>{});
  EXPECT_TRUE(CheckLaunches(launches, kAnyGroups).ok());
  launch.Push(uint8_t{1});
  EXPECT_FALSE(CheckLaunches(launches, kAnyGroups).ok());
}

TEST(Arguments, MoreGroupsThanTheDeviceRunsFailThePlan) {
  const Kernel kernel{.entry = "wide"};
  constexpr GroupLimits kLimits = {1000, 100, 10};
  LaunchList launches;
  Launch& launch = launches.Add();
  const auto check = [&](int64_t x, int64_t y, int64_t z, const GroupLimits& limits) {
    launch.Reset(&kernel, x, y, z);
    return CheckLaunches(launches, limits);
  };
  EXPECT_TRUE(check(1000, 100, 10, kLimits).ok());
  EXPECT_EQ(check(1001, 1, 1, kLimits),
            absl::UnimplementedError("the tensors are too large: kernel wide needs more groups of threads "
                                     "than the 1000 that the device runs in one launch"));
  EXPECT_FALSE(check(1, 101, 1, kLimits).ok());
  EXPECT_FALSE(check(1, 1, 11, kLimits).ok());
  EXPECT_TRUE(check(int64_t{1} << 31, 1, 1, kAnyGroups).ok());
  // Cut to 32 bits, each would run nothing, or one group.
  for (const int64_t groups : {int64_t{UINT32_MAX}, int64_t{1} << 32, (int64_t{1} << 32) + 1}) {
    EXPECT_FALSE(check(groups, 1, 1, kAnyGroups).ok()) << groups;
    EXPECT_FALSE(check(1, groups, 1, kAnyGroups).ok()) << groups;
    EXPECT_FALSE(check(1, 1, groups, kAnyGroups).ok()) << groups;
  }
}

// Fields of `widths` bits.
template <size_t count>
struct WideKey {
  std::array<uint64_t, count> fields{};
  std::array<int, count> widths{};

  void Visit(auto& visit) {
    for (size_t f = 0; f < count; ++f) visit(fields[f], widths[f]);
  }
};

TEST(Keys, KeepEveryFieldAcrossWords) {
  struct Key : WideKey<7> {
    Key() { widths = {63, 1, 50, 20, 63, 50, 1}; }  // 248: with the skeleton's number, all there are
  };
  Key key;
  key.fields = {0x5a5a'1234'5678'9abc, 1, 0x3'ffff'ffff'fffe, 0xabcde, 0x7edc'ba98'7654'3210,
                0x1'2345'6789'abcd,    1};
  const KernelKey packed = PackKey(0xa5, key);
  EXPECT_EQ(packed.words[0] & 0xff, 0xa5u);
  EXPECT_EQ(UnpackKey<Key>(packed).fields, key.fields);
  for (size_t f = 0; f < key.fields.size(); ++f) {
    Key other = key;
    other.fields[f] ^= 1;
    EXPECT_NE(PackKey(0xa5, other), packed) << f;
  }
}

TEST(KeysDeathTest, TooWideAValueAndTooManyBitsAreCaught) {
  EXPECT_DEATH(PackKey(1, WideKey<1>{.fields = {16}, .widths = {4}}), "CHECK failed");
  EXPECT_DEATH(PackKey(1, WideKey<5>{.fields = {}, .widths = {50, 50, 50, 50, 49}}), "CHECK failed");
}

}  // namespace
}  // namespace xpud::kernels
