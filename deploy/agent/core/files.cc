#include "deploy/agent/core/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent {
namespace {

absl::Status Failed(const char* what, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", what, " ", path));
}

absl::Status WriteAll(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t count = write(fd, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed("write", path);
    content.remove_prefix(static_cast<size_t>(count));
  }
  return fsync(fd) == 0 ? absl::OkStatus() : Failed("write", path);
}

absl::Status WriteNew(const std::string& path, std::string_view content) {
  unlink(path.c_str());
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid()) return Failed("create", path);
  if (fchmod(fd.get(), 0644) != 0) return Failed("set the mode of", path);
  return WriteAll(fd.get(), content, path);
}

}  // namespace

absl::Status ReplaceFile(const std::string& path, std::string_view content) {
  const std::string unfinished = absl::StrCat(path, kUnfinished);
  absl::Status status = WriteNew(unfinished, content);
  if (status.ok() && rename(unfinished.c_str(), path.c_str()) != 0) status = Failed("replace", path);
  if (!status.ok()) {
    unlink(unfinished.c_str());
    return status;
  }
  const UniqueFd folder(
      open(std::filesystem::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid()) fsync(folder.get());  // the rename itself; a folder that cannot do it has no disk
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t most) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return Failed("open", path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  std::string content(most + 1, '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t count = read(fd.get(), content.data() + size, content.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed("read", path);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  if (size > most)
    return absl::OutOfRangeError(absl::StrCat(path, " has more than ", most, " bytes, which are allowed"));
  content.resize(size);
  return content;
}

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make the folder ", path));
}

}  // namespace xpud::agent
