#include "kernels/compiler/object_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"

namespace xpud::kernels {
namespace {

using Digest = std::array<uint8_t, 32>;

constexpr size_t kMaxFile = size_t{64} << 20;
constexpr uint64_t kBlock = 512;  // of stat

struct Header {
  char magic[8];
  uint64_t identity_bytes;
  uint64_t code_bytes;
  uint8_t checksum[32];  // of identity and code
};
static_assert(sizeof(Header) == 56);
constexpr char kMagic[8] = {'x', 'p', 'u', 'd', 'k', 'r', 'n', '1'};

Digest DigestOf(const std::string& bytes) {
  return llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

std::string FileName(const std::string& identity) {
  const Digest digest = DigestOf(identity);
  return llvm::toHex(llvm::ArrayRef(digest.data(), digest.size()), /*LowerCase=*/true);
}

// A name that Write gives; while it writes, too, since who dies then leaves the file.
bool IsOurs(std::string_view name) {
  const bool temporary = name.size() > 5 && name[0] == '.' && name.substr(name.size() - 4) == ".tmp";
  const bool digest = name.size() == 64 && name.find_first_not_of("0123456789abcdef") == name.npos;
  return temporary || digest;
}

void MarkUsed(const UniqueFd& directory, const std::string& name) {
  const timespec times[] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::utimensat(directory.get(), name.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

bool ReadExactly(int fd, char* to, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = ::read(fd, to, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteExactly(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

// A file that was written here, or is being written.
struct ObjectCache::File {
  std::string name;
  uint64_t bytes;  // of the disk
  timespec used;
};

absl::StatusOr<std::unique_ptr<ObjectCache>> ObjectCache::Open(const std::string& directory, uint64_t limit) {
  if (directory.empty() || directory[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("cache directory '", directory, "' is not an absolute path"));
  }
  std::error_code ignored;  // mkdir says what is wrong
  std::filesystem::create_directories(std::filesystem::path(directory).parent_path(), ignored);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::PermissionDeniedError(absl::StrCat("cannot create ", directory, ": ", std::strerror(errno)));
  }
  UniqueFd fd(::open(directory.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info;
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("cannot open ", directory, ": ", std::strerror(errno)));
  }
  if (info.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(directory, " belongs to uid ", info.st_uid, ", not to us"));
  }
  RETURN_IF_ERROR(CheckFolderIsOurs(directory));
  return std::unique_ptr<ObjectCache>(new ObjectCache(std::move(fd), limit));
}

absl::StatusOr<std::string> ObjectCache::Load(const std::string& identity) {
  const std::string name = FileName(identity);
  auto code = Read(name, identity);
  if (!code.ok()) return code;
  MarkUsed(directory_, name);
  MutexLock lock(mutex_);
  in_use_.insert(name);
  return code;
}

absl::Status ObjectCache::Save(const std::string& identity, const std::string& code) {
  const std::string name = FileName(identity);
  RETURN_IF_ERROR(Write(name, identity, code));
  {
    MutexLock lock(mutex_);
    in_use_.insert(name);
  }
  MakeRoom(sizeof(Header) + identity.size() + code.size());
  return absl::OkStatus();
}

void ObjectCache::Release(const std::string& identity) {
  const std::string name = FileName(identity);
  MarkUsed(directory_, name);
  MutexLock lock(mutex_);
  in_use_.erase(name);
}

absl::StatusOr<std::string> ObjectCache::Read(const std::string& name, const std::string& identity) const {
  absl::Status miss = absl::NotFoundError("not in the kernel cache");
  UniqueFd fd(::openat(directory_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) return miss;
  const size_t size = static_cast<size_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || info.st_uid != ::geteuid() || OthersMayWrite(info.st_mode) ||
      size < sizeof(Header) || size > kMaxFile) {
    return miss;
  }
  Header header;
  if (!ReadExactly(fd.get(), reinterpret_cast<char*>(&header), sizeof(header))) return miss;
  const size_t rest = size - sizeof(header);
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.identity_bytes != identity.size() ||
      header.identity_bytes > rest || header.code_bytes != rest - header.identity_bytes) {
    return miss;
  }
  std::string body(rest, '\0');
  if (!ReadExactly(fd.get(), body.data(), rest)) return miss;
  const Digest digest = DigestOf(body);
  if (std::memcmp(header.checksum, digest.data(), digest.size()) != 0) return miss;
  if (body.compare(0, identity.size(), identity) != 0) return miss;
  return body.substr(identity.size());
}

absl::Status ObjectCache::Write(const std::string& name, const std::string& identity,
                                const std::string& code) const {
  static std::atomic<uint64_t> counter{0};
  const std::string temporary =
      absl::StrCat(".", ::getpid(), ".", counter.fetch_add(1, std::memory_order_relaxed), ".tmp");
  ::unlinkat(directory_.get(), temporary.c_str(), 0);  // left by a dead process that had our pid
  UniqueFd fd(::openat(directory_.get(), temporary.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "cannot create a file in the kernel cache");
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.identity_bytes = identity.size();
  header.code_bytes = code.size();
  const Digest digest = DigestOf(identity + code);
  std::memcpy(header.checksum, digest.data(), digest.size());
  const bool written = WriteExactly(
      fd.get(), std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + identity + code);
  if (!written || ::renameat(directory_.get(), temporary.c_str(), directory_.get(), name.c_str()) != 0) {
    const int error = errno;
    ::unlinkat(directory_.get(), temporary.c_str(), 0);
    return absl::ErrnoToStatus(error, "cannot write a file of the kernel cache");
  }
  return absl::OkStatus();
}

void ObjectCache::SetLimit(uint64_t bytes) {
  MutexLock lock(mutex_);
  limit_ = bytes;
  added_ = UINT64_MAX;  // look with the next one
}

void ObjectCache::MakeRoom(uint64_t added) {
  MutexLock lock(mutex_);
  added_ = added_ > UINT64_MAX - added ? UINT64_MAX : added_ + added;
  if (added_ <= limit_ / 16) return;
  added_ = 0;
  std::vector<File> files = List();
  uint64_t total = 0;
  for (const File& file : files) total += file.bytes;
  if (total <= limit_) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec) < std::tie(b.used.tv_sec, b.used.tv_nsec);
  });
  // A little more than it must be, so that the next look is not soon.
  for (const File& file : files) {
    if (total <= limit_ - limit_ / 8) break;
    if (in_use_.contains(file.name)) continue;
    if (::unlinkat(directory_.get(), file.name.c_str(), 0) == 0) total -= file.bytes;
  }
}

std::vector<ObjectCache::File> ObjectCache::List() const {
  std::vector<File> files;
  const int fd = ::openat(directory_.get(), ".", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
  DIR* const list = fd < 0 ? nullptr : ::fdopendir(fd);
  if (list == nullptr) {
    if (fd >= 0) ::close(fd);
    return files;
  }
  while (const dirent* entry = ::readdir(list)) {
    struct stat info;
    if (!IsOurs(entry->d_name) || ::fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode))
      files.push_back({entry->d_name, static_cast<uint64_t>(info.st_blocks) * kBlock, info.st_atim});
  }
  ::closedir(list);
  return files;
}

}  // namespace xpud::kernels
