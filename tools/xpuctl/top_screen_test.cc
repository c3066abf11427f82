#include "tools/xpuctl/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace xpud::xpuctl {
namespace {

using Action = TopScreen::Action;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Key Character(char character) { return {Key::kCharacter, character}; }
constexpr Key kUp = {Key::kUp, 0}, kDown = {Key::kDown, 0};

// A daemon with so many sessions: 1 is the busiest, the last one has the most memory.
class TopScreenTest : public testing::Test {
 protected:
  void Sessions(uint64_t first, uint64_t last) {
    v1::GetStatusResponse earlier;
    earlier.set_time_ns(1);
    later_ = {};
    later_.set_time_ns(1'000'000'001);
    for (uint64_t id = first; id <= last; ++id) {
      v1::Session& session = *later_.add_sessions();
      session.set_id(id);
      session.set_pid(static_cast<int32_t>(1000 + id));
      session.set_client_name("client" + std::to_string(id));
      session.set_busy_ns(1'000'000'000 / id);
      session.set_memory_bytes(id << 20);
    }
    rates_ = Between(earlier, later_);
    screen_.Update({{"", &later_, &rates_}}, "");
  }
  uint64_t Selected() const { return screen_.selected()->rates->session->id(); }
  std::string Drawn(size_t rows = 24, size_t columns = 200) const {
    std::string text;
    for (const std::string& line : screen_.Draw(rows, columns)) text += line + "\n";
    return text;
  }
  std::string LastLine() const { return screen_.Draw(24, 200).back(); }

  v1::GetStatusResponse later_;
  Rates rates_;
  TopScreen screen_{false};
};

TEST_F(TopScreenTest, KeysSortTheSessions) {
  Sessions(1, 3);
  EXPECT_LT(Drawn().find("client1"), Drawn().find("client3"));
  screen_.Press(Character('m'));
  EXPECT_GT(Drawn().find("client1"), Drawn().find("client3"));
  EXPECT_THAT(LastLine(), HasSubstr("sorted by memory"));
  screen_.Press(Character('s'));
  EXPECT_THAT(LastLine(), HasSubstr("sorted by commands"));
}

TEST_F(TopScreenTest, TheSelectedSessionStaysSelectedWhereverItIsSorted) {
  Sessions(1, 3);
  screen_.Press(kDown);
  EXPECT_EQ(Selected(), 2u);
  screen_.Press(kDown);
  screen_.Press(kDown);
  EXPECT_EQ(Selected(), 3u) << "and there is an end";
  screen_.Press(Character('m'));
  EXPECT_EQ(Selected(), 3u);
  screen_.Press(kUp);
  EXPECT_EQ(Selected(), 3u) << "now the first";
  Sessions(1, 2);
  EXPECT_EQ(Selected(), 2u) << "it has ended: the first of the others";
}

TEST_F(TopScreenTest, NothingIsKilledThatWasNotConfirmed) {
  Sessions(1, 2);
  EXPECT_EQ(screen_.Press(Character('k')), Action::kNone);
  EXPECT_THAT(LastLine(), StartsWith("close session 1 of "));
  EXPECT_THAT(LastLine(), HasSubstr("(client1, pid 1001)? y or n"));
  EXPECT_EQ(screen_.Press(Character('q')), Action::kNone) << "any key but y is no";
  EXPECT_THAT(LastLine(), HasSubstr("nothing was killed"));
  EXPECT_EQ(screen_.Press(Character('y')), Action::kNone) << "nothing is asked";
  screen_.Press(Character('k'));
  EXPECT_EQ(screen_.Press(Character('y')), Action::kKill);
}

TEST_F(TopScreenTest, WhoComesWhileItIsAskedIsNotKilledInstead) {
  Sessions(1, 2);
  screen_.Press(Character('k'));
  Sessions(2, 3);
  EXPECT_EQ(screen_.Press(Character('y')), Action::kNone);
  EXPECT_THAT(LastLine(), HasSubstr("has ended already"));
  Sessions(5, 4);
  EXPECT_EQ(screen_.Press(Character('k')), Action::kNone);
  EXPECT_THAT(LastLine(), HasSubstr("no session to kill"));
}

TEST_F(TopScreenTest, ControlCQuitsAlsoWhileItAsks) {
  Sessions(1, 1);
  EXPECT_EQ(screen_.Press(Character('q')), Action::kQuit);
  screen_.Press(Character('k'));
  EXPECT_EQ(screen_.Press(Character(kControlC)), Action::kQuit);
}

TEST_F(TopScreenTest, PauseAndHelpAreSeen) {
  Sessions(1, 1);
  screen_.Press(Character('p'));
  EXPECT_TRUE(screen_.paused());
  EXPECT_THAT(LastLine(), HasSubstr("PAUSED"));
  screen_.Press(Character(' '));
  EXPECT_FALSE(screen_.paused());
  screen_.Press(Character('?'));
  EXPECT_THAT(Drawn(), HasSubstr("kill the selected session"));
  screen_.Press({Key::kEscape, 0});
  EXPECT_THAT(Drawn(), Not(HasSubstr("kill the selected session")));
}

TEST_F(TopScreenTest, WhatIsDrawnFitsTheTerminalAndShowsTheSelectedSession) {
  Sessions(1, 100);
  for (int i = 0; i < 60; ++i) screen_.Press(kDown);
  for (const size_t rows : {1, 2, 3, 5, 24}) {
    const auto lines = screen_.Draw(rows, 40);
    EXPECT_EQ(lines.size(), rows);
    for (const std::string& line : lines)
      EXPECT_LE(line.size(), 40 + std::string_view("\x1b[7m\x1b[0m").size());
  }
  EXPECT_THAT(Drawn(), HasSubstr("\x1b[7m"));
  EXPECT_THAT(Drawn(), HasSubstr("client61"));
  EXPECT_THAT(Drawn(), Not(HasSubstr("client62 ")));
}

}  // namespace
}  // namespace xpud::xpuctl
