#include "daemon/telemetry/log_ring.h"

#include <gtest/gtest.h>
#include <spdlog/logger.h>

namespace xpud::telemetry {
namespace {

TEST(LogRing, TheLastLinesAreKeptAsTheyWereLoggedAndPrintable) {
  const auto lines = std::make_shared<LogLines>(3);
  spdlog::logger logger("test", KeepLines(lines));
  logger.set_level(spdlog::level::debug);
  logger.trace("is below the logger's level");
  logger.debug("one");
  logger.info("two {}", 2);
  logger.warn("a \x1b[31mred\nline");
  logger.critical("{}", std::string(2 * kMaxLineText, 'x'));
  const auto kept = lines->After(0, 10);
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(kept[0]->text, "two 2");
  EXPECT_EQ(kept[0]->level, LogLevel::kInfo);
  EXPECT_EQ(kept[0]->sequence, 2u);
  EXPECT_EQ(kept[1]->text, "a ?[31mred?line");
  EXPECT_EQ(kept[1]->level, LogLevel::kWarn);
  EXPECT_EQ(kept[2]->text.size(), kMaxLineText);
  EXPECT_EQ(kept[2]->level, LogLevel::kError) << "no worse is told apart";
  EXPECT_GT(kept[0]->unix_ms, 1'600'000'000'000);
}

TEST(LogRing, LevelsAreReadAsTheyAreNamed) {
  for (const LogLevel level :
       {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError})
    EXPECT_EQ(LevelOf(NameOf(level)), level);
  EXPECT_EQ(LevelOf("warning"), std::nullopt);
}

}  // namespace
}  // namespace xpud::telemetry
