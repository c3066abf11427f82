#include "daemon/service/claim_store.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/service/claim_messages.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"
#include "proto/base/unique_fd.h"

namespace xpud::service {
namespace {

namespace fs = std::filesystem;

// A file is these lines, the claim in JSON, and a line with the sum of all before it:
//   xpud-claim 1
//   boot BOOT-ID
//   expires-ns N      on the clock of that boot; 0: never
//   rest-ns N         until then, when the file was written
//   {...}
//   crc32c 89abcdef
constexpr char kFirstLine[] = "xpud-claim 1\n", kSum[] = "crc32c ";
constexpr char kExtension[] = ".claim", kUnfinished[] = ".new";
constexpr size_t kMaxFile = size_t{1} << 20;

// CRC-32C, bit by bit: files are short and seldom.
std::string SumOf(std::string_view text) {
  constexpr uint32_t kPolynomial = 0x82f63b78;
  uint32_t sum = ~uint32_t{0};
  for (const char c : text) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? kPolynomial : 0);
  }
  return absl::StrFormat("%08x", ~sum);
}

// Takes the line "NAME VALUE" off the text. Returns InvalidArgument if it is another one.
absl::StatusOr<std::string> TakeLine(std::string_view& text, const std::string& name) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  if (end == std::string_view::npos || !line.starts_with(name + " "))
    return absl::InvalidArgumentError(absl::StrCat("it has no line \"", name, "\""));
  text.remove_prefix(end + 1);
  return std::string(line.substr(name.size() + 1));
}

absl::StatusOr<uint64_t> TakeNumber(std::string_view& text, const std::string& name) {
  ASSIGN_OR_RETURN(const std::string value, TakeLine(text, name));
  uint64_t number = 0;
  if (!absl::SimpleAtoi(value, &number))
    return absl::InvalidArgumentError(absl::StrCat("its ", name, " is no number"));
  return number;
}

absl::Status WriteAll(const UniqueFd& file, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t count = write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    text.remove_prefix(static_cast<size_t>(count));
  }
  if (fsync(file.get()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot flush ", path));
  return absl::OkStatus();
}

}  // namespace

uint64_t BootClockNs() {
  timespec now = {};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

absl::StatusOr<std::unique_ptr<ClaimStore>> ClaimStore::Open(const std::string& folder, std::string boot) {
  const auto named = [](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("state-dir: ", status.message()));
  };
  const std::string files = folder + "/claims";
  for (const std::string& path : {folder, files}) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return absl::ErrnoToStatus(errno, absl::StrCat("state-dir: cannot make the folder ", path));
    if (absl::Status ours = CheckFolderIsOurs(path); !ours.ok()) return named(ours);
  }
  if (access(files.c_str(), W_OK | X_OK) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("state-dir: files cannot be written to ", files));
  std::error_code error;
  return std::unique_ptr<ClaimStore>(new ClaimStore(fs::canonical(files, error).string(), std::move(boot)));
}

std::string ClaimStore::PathOf(const std::string& key) const {
  return absl::StrCat(folder_, "/", key, kExtension);
}

std::string ClaimStore::TextOf(const Kept& kept) const {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.add_whitespace = true;
  std::string json;
  XPUD_CHECK(google::protobuf::util::MessageToJsonString(MessageOf(kept.claim), &json, options).ok());
  const uint64_t rest = kept.expires_ns - std::min(kept.expires_ns, BootClockNs());
  const std::string text =
      absl::StrCat(kFirstLine, "boot ", boot_, "\nexpires-ns ", kept.expires_ns, "\nrest-ns ", rest, "\n",
                   std::string(absl::StripTrailingAsciiWhitespace(json)), "\n");
  return absl::StrCat(text, kSum, SumOf(text), "\n");
}

absl::StatusOr<ClaimStore::Kept> ClaimStore::Parse(std::string_view text, size_t devices) const {
  const size_t at = text.rfind(kSum);
  if (!text.starts_with(kFirstLine)) return absl::InvalidArgumentError("it is no file of a claim");
  if (at == std::string_view::npos || text.substr(at) != absl::StrCat(kSum, SumOf(text.substr(0, at)), "\n"))
    return absl::InvalidArgumentError("its sum is wrong: it was edited or cut");
  text = text.substr(std::string_view(kFirstLine).size(), at - std::string_view(kFirstLine).size());
  Kept kept;
  ASSIGN_OR_RETURN(const std::string boot, TakeLine(text, "boot"));
  ASSIGN_OR_RETURN(kept.expires_ns, TakeNumber(text, "expires-ns"));
  ASSIGN_OR_RETURN(const uint64_t rest, TakeNumber(text, "rest-ns"));
  if (kept.expires_ns != 0 && boot != boot_) kept.expires_ns = BootClockNs() + std::max<uint64_t>(rest, 1);
  v1::Claim message;
  const auto parsed = google::protobuf::util::JsonStringToMessage(std::string(text), &message);
  if (!parsed.ok())
    return absl::InvalidArgumentError(absl::StrCat("its claim: ", std::string(parsed.message())));
  ASSIGN_OR_RETURN(kept.claim, ReadClaim(message, devices));
  return kept;
}

absl::StatusOr<ClaimStore::Kept> ClaimStore::Read(const std::string& path, size_t devices) const {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info;
  if (!file.valid() || fstat(file.get(), &info) != 0)
    return absl::InvalidArgumentError(absl::ErrnoToStatus(errno, "it cannot be opened").message());
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || OthersMayWrite(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "it belongs to uid %d with mode %04o; it has to be a file of uid %d that nobody else may write",
        info.st_uid, info.st_mode & 07777, geteuid()));
  }
  if (static_cast<uint64_t>(info.st_size) > kMaxFile)
    return absl::InvalidArgumentError(absl::StrCat("it has ", info.st_size, " bytes"));
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t count = pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  ASSIGN_OR_RETURN(Kept kept, Parse(text, devices));
  if (PathOf(kept.claim.key) != path)
    return absl::InvalidArgumentError(absl::StrCat("it is that of the claim ", kept.claim.key));
  return kept;
}

ClaimStore::Found ClaimStore::Load(size_t devices) {
  Found found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, error)) {
    const std::string path = entry.path().string();
    if (path.ends_with(kUnfinished)) unlink(path.c_str());
    if (!path.ends_with(kExtension)) continue;
    absl::StatusOr<Kept> kept = Read(path, devices);
    if (kept.ok())
      found.claims.push_back(*std::move(kept));
    else
      found.unreadable.emplace(path, std::string(kept.status().message()));
  }
  unreadable_ = found.unreadable;
  return found;
}

absl::Status ClaimStore::FlushFolder() const {
  const UniqueFd folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.valid() && fsync(folder.get()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot flush ", folder_));
}

absl::Status ClaimStore::Save(const Kept& kept) {
  const std::string path = PathOf(kept.claim.key), unfinished = path + kUnfinished;
  if (const auto found = unreadable_.find(path); found != unreadable_.end()) {
    if (access(path.c_str(), F_OK) == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is in the way, which cannot be read: ", found->second, "; move it away"));
    }
    unreadable_.erase(found);
  }
  const std::string text = TextOf(kept);
  absl::Status written;
  {
    const UniqueFd file(
        open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    written = file.valid() ? WriteAll(file, text, unfinished)
                           : absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", unfinished));
  }
  if (written.ok() && rename(unfinished.c_str(), path.c_str()) != 0)
    written = absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
  if (written.ok()) return FlushFolder();
  unlink(unfinished.c_str());
  return written;
}

absl::Status ClaimStore::Remove(const std::string& key) {
  if (unlink(PathOf(key).c_str()) != 0 && errno != ENOENT)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove ", PathOf(key)));
  return FlushFolder();
}

}  // namespace xpud::service
