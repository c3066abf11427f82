#include "proto/base/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"

namespace xpud {

LineWriter::LineWriter(int fd) : fd_(fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return;
  if (S_ISSOCK(info.st_mode)) kind_ = Kind::kSocket;
  // A file would get a position of its own, and needs none of this.
  if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;
  own_.Reset(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own_.valid()) kind_ = Kind::kNonBlocking;  // otherwise it belongs to another user, or nobody reads
}

bool LineWriter::Write(std::string_view line) {
  if (!rest_.empty()) rest_.erase(0, WriteSome(rest_));
  if (!rest_.empty()) return false;
  const size_t written = WriteSome(line);
  if (written == 0) return line.empty();
  rest_ = line.substr(written);
  return true;
}

size_t LineWriter::WriteSome(std::string_view text) const {
  size_t written = 0;
  while (written < text.size()) {
    const std::string_view rest = text.substr(written);
    ssize_t count = 0;
    if (kind_ == Kind::kSocket) {
      count = send(fd_, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (kind_ == Kind::kNonBlocking) {
      count = write(own_.get(), rest.data(), rest.size());
    } else {  // a pipe that is writable has room for PIPE_BUF bytes
      pollfd room = {fd_, POLLOUT, 0};
      if (poll(&room, 1, 0) == 0) return written;
      count = write(fd_, rest.data(), std::min<size_t>(rest.size(), PIPE_BUF));
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return written;
    if (count < 0) return text.size();  // nobody will ever read it
    written += static_cast<size_t>(count);
  }
  return written;
}

}  // namespace xpud
