#include "daemon/stream/prediction.h"

#include "gtest/gtest.h"

namespace xpud::stream {
namespace {

constexpr double kMs = 1e6;
constexpr executor::PeakRates kPeak = {.memory_bytes = 1'000'000'000'000,
                                       .float_operations = 1'000'000'000'000};

void Learn(Prediction& prediction, double factor, int times) {
  for (int i = 0; i < times; ++i) prediction.Learn(kMs, static_cast<uint64_t>(factor * kMs));
}

TEST(Prediction, WhatMayBeInFlightFollowsTheSessionsLastWork) {
  Slowness usual;
  Prediction prediction(kPeak, usual);
  Learn(prediction, 1.5, 50);
  EXPECT_NEAR(static_cast<double>(prediction.Corrected(kMs)), 1.5 * kMs, 0.01 * kMs);
  Learn(prediction, 8, 30);
  EXPECT_NEAR(static_cast<double>(prediction.Corrected(kMs)), 8 * kMs, 0.2 * kMs);
}

// One runs alone often, the other never, so only one is measured.
TEST(Prediction, EqualProgramsAreChargedAlikeWhoeverRanAlone) {
  Slowness usual;
  Prediction alone(kPeak, usual), beside(kPeak, usual);
  Learn(alone, 1.25, 2000);
  EXPECT_NEAR(static_cast<double>(beside.Fair(kMs)) / static_cast<double>(alone.Fair(kMs)), 1, 0.01);
  Learn(beside, 3, 20);  // as its first batches took
  EXPECT_NEAR(static_cast<double>(beside.Fair(kMs)) / static_cast<double>(alone.Fair(kMs)), 1, 0.1);
}

TEST(Prediction, ProgramsThatDifferAreChargedByWhatTheyTookAlone) {
  Slowness usual;
  Prediction fast(kPeak, usual), slow(kPeak, usual);
  for (int i = 0; i < 10000; ++i) {
    Learn(fast, 1.25, 1);
    Learn(slow, 5, 1);
  }
  EXPECT_NEAR(static_cast<double>(slow.Fair(kMs)) / static_cast<double>(fast.Fair(kMs)), 4, 1);
}

TEST(Prediction, ShortWorkTeachesLittle) {
  Slowness usual;
  Prediction prediction(kPeak, usual);
  Learn(prediction, 1.25, 1000);
  for (int i = 0; i < 1000; ++i) prediction.Learn(2'000, 30'000);  // seen 28 us after its end
  EXPECT_LT(static_cast<double>(prediction.Fair(kMs)), 1.4 * kMs);
}

}  // namespace
}  // namespace xpud::stream
