#include "proto/base/line_writer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace xpud {
namespace {

// Reads what is there.
std::string Drain(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) text.append(buffer, static_cast<size_t>(n));
  return text;
}

std::string LineOf(int number) { return absl::StrCat(number, " ", std::string(99, 'x'), "\n"); }

// The reader stops: lines are refused, and what is read later consists of whole lines.
void ExpectNoWaiting(int reading, int writing) {
  const int flags = fcntl(writing, F_GETFL);
  LineWriter writer(writing);
  int written = 0;
  while (writer.Write(LineOf(written))) ASSERT_LT(++written, 100'000);
  EXPECT_GT(written, 100);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(writer.Write(LineOf(written)));
  EXPECT_EQ(fcntl(writing, F_GETFL), flags) << "other processes use the same pipe";
  std::string text = Drain(reading);
  EXPECT_TRUE(writer.Write("more\n"));
  text += Drain(reading);
  std::string expected;
  for (int i = 0; i < written; ++i) expected += LineOf(i);
  EXPECT_EQ(text, expected + "more\n");
}

TEST(LineWriter, DoesNotWaitForTheReaderOfAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ExpectNoWaiting(ends[0], ends[1]);
  close(ends[0]), close(ends[1]);
}

TEST(LineWriter, DoesNotWaitForTheReaderOfASocket) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  ExpectNoWaiting(ends[0], ends[1]);
  close(ends[0]), close(ends[1]);
}

TEST(LineWriter, AReaderThatIsGoneIsNoErrorAndNoWait) {
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  LineWriter writer(ends[1]);
  close(ends[0]);
  for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(writer.Write(LineOf(i)));
  close(ends[1]);
}

TEST(LineWriter, AFileIsAppendedToByAllWhoShareIt) {
  char path[] = "/tmp/xpud-lines-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_EQ(write(file, "before\n", 7), 7);
  LineWriter writer(file);
  EXPECT_TRUE(writer.Write("ours\n"));
  ASSERT_EQ(write(file, "after\n", 6), 6);
  lseek(file, 0, SEEK_SET);
  EXPECT_EQ(Drain(file), "before\nours\nafter\n");
  close(file), unlink(path);
}

}  // namespace
}  // namespace xpud
