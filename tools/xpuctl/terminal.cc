#include "tools/xpuctl/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace xpud::xpuctl {
namespace {

constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";  // alternate screen, no cursor
constexpr char kLeave[] = "\x1b[?25h\x1b[?1049l";
constexpr int kRestOfKeyMs = 20;  // the bytes of one key arrive within this time

winsize SizeOf() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
  return size;
}

}  // namespace

bool Terminal::IsThere() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && kind != nullptr && std::string_view(kind) != "dumb";
}

absl::StatusOr<std::unique_ptr<Terminal>> Terminal::Take() {
  termios before;
  if (tcgetattr(STDIN_FILENO, &before) != 0) return absl::ErrnoToStatus(errno, "cannot ask the terminal");
  termios raw = before;
  // Ctrl-C and Ctrl-Z are read as keys, so that the program is never stopped with the terminal in this state.
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  std::unique_ptr<Terminal> terminal(new Terminal(before));
  if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) != 0)
    return absl::ErrnoToStatus(errno, "cannot set the terminal");
  std::fputs(kEnter, stdout);
  std::fflush(stdout);
  return terminal;
}

Terminal::~Terminal() {
  std::fputs(kLeave, stdout);
  std::fflush(stdout);
  // Neither waits for output to be read nor keeps keys that were pressed.
  tcflush(STDIN_FILENO, TCIFLUSH);
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

size_t Terminal::rows() const { return SizeOf().ws_row; }
size_t Terminal::columns() const { return SizeOf().ws_col; }

std::optional<char> Terminal::ReadByte(int milliseconds) {
  pollfd ready = {STDIN_FILENO, POLLIN, 0};
  if (poll(&ready, 1, milliseconds) <= 0) return std::nullopt;
  char byte;
  if (read(STDIN_FILENO, &byte, 1) == 1) return byte;
  return kControlC;  // the terminal is gone
}

std::optional<Key> Terminal::Read(double seconds) {
  const auto first = ReadByte(static_cast<int>(std::max(seconds, 0.0) * 1000));
  if (!first) return std::nullopt;
  if (*first != '\x1b') return Key{Key::kCharacter, *first};
  const auto second = ReadByte(kRestOfKeyMs);
  if (!second) return Key{Key::kEscape, 0};
  if (*second != '[' && *second != 'O') return Key{};
  std::optional<char> last;
  do last = ReadByte(kRestOfKeyMs);
  while (last && (*last == ';' || (*last >= '0' && *last <= '9')));
  if (last == 'A') return Key{Key::kUp, 0};
  return Key{last == 'B' ? Key::kDown : Key::kOther, 0};
}

bool Terminal::Show(const std::vector<std::string>& lines) {
  std::string text = "\x1b[H";
  for (const std::string& line : lines) {
    if (&line != &lines[0]) text += "\r\n";
    text += line + "\x1b[K";
  }
  text += "\x1b[J";
  return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
}

}  // namespace xpud::xpuctl
