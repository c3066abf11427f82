#include "deploy/agent/kubernetes/cdi_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "deploy/agent/kubernetes/json.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/base/unique_fd.h"

namespace xpud::agent::kubernetes {
namespace {

// The first version with annotations.
constexpr char kVersion[] = "0.6.0";
constexpr char kContainerPath[] = "/run/xpud";
constexpr char kPrefix[] = "xpud.dev-claim_";
constexpr char kSuffix[] = ".json";
constexpr char kTemporaryPrefix[] = ".xpud.dev-claim_";  // runtimes read only *.json and *.yaml
constexpr char kNamespaceNote[] = "xpud.dev/namespace";
constexpr char kNameNote[] = "xpud.dev/name";
constexpr char kPodsNote[] = "xpud.dev/pods";
constexpr size_t kMaxFile = size_t{64} << 10;
constexpr size_t kMaxPods = 256;
constexpr size_t kMaxPath = 4096;

absl::Status Failed(const char* what, const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

absl::Status Refuse(const std::string& why) { return absl::InvalidArgumentError(why); }

absl::Status CheckClaim(const CdiClaim& claim) {
  if (!IsUid(claim.uid)) return Refuse("the claim's uid is not a uid");
  if (!IsObjectName(claim.name_space) || !IsObjectName(claim.name))
    return Refuse("the claim's name or namespace is not a name");
  if (claim.pods.size() > kMaxPods || !std::ranges::all_of(claim.pods, IsUid))
    return Refuse("a pod's uid is not a uid, or there are more than 256");
  if (!claim.door.starts_with('/') || claim.door.size() > kMaxPath || PrintableText(claim.door) != claim.door)
    return Refuse("the claim's folder is not an absolute path");
  return absl::OkStatus();
}

// A file that is removed again unless it gets its name.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string pattern)
      : path_(std::move(pattern)), fd_(mkostemp(path_.data(), O_CLOEXEC)) {}
  ~TemporaryFile() {
    if (fd_.valid()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool valid() const { return fd_.valid(); }
  // Returns 0 or an errno. On success the file has the name `path`.
  int Finish(std::string_view text, const std::string& path) {
    for (; !text.empty();) {
      const ssize_t written = write(fd_.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      text.remove_prefix(static_cast<size_t>(written));
    }
    if (fchmod(fd_.get(), 0644) != 0 || fsync(fd_.get()) != 0 || rename(path_.c_str(), path.c_str()) != 0)
      return errno;
    fd_.Reset();
    return 0;
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

// Like `mkdir -p`, with mode 0755 less the umask.
absl::Status MakeFolder(const std::string& folder) {
  for (size_t end = 1; end != std::string::npos;) {
    end = folder.find('/', end + 1);
    const std::string part = folder.substr(0, end);
    if (mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) return Failed("create the folder", part, errno);
  }
  return absl::OkStatus();
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// The names of files in the folder that start with `prefix`, in order.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder, std::string_view prefix) {
  const std::unique_ptr<DIR, CloseFolder> opened(opendir(folder.c_str()));
  if (!opened) return Failed("read the folder", folder, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(opened.get()))
    if (std::string_view(entry->d_name).starts_with(prefix)) names.emplace_back(entry->d_name);
  if (errno != 0) return Failed("read the folder", folder, errno);
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid()) return Failed("open", path, errno);
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return Failed("read", path, errno);
  if (!S_ISREG(status.st_mode)) return Refuse("it is not a regular file");
  std::string text(kMaxFile + 1, '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = read(fd.get(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", path, errno);
    if (got == 0) break;
    length += static_cast<size_t>(got);
  }
  if (length > kMaxFile) return Refuse(absl::StrCat("it has more than ", kMaxFile, " bytes"));
  text.resize(length);
  return text;
}

Json DeviceOf(const CdiClaim& claim) {
  const Json mount = {{"hostPath", claim.door},
                      {"containerPath", kContainerPath},
                      {"options", {"bind", "ro", "nosuid", "nodev", "noexec"}}};
  return {{"name", claim.uid},
          {"annotations",
           {{kNamespaceNote, claim.name_space},
            {kNameNote, claim.name},
            {kPodsNote, absl::StrJoin(claim.pods, ",")}}},
          {"containerEdits", {{"mounts", Json::array({mount})}}}};
}

const Json& First(const Json& list) {
  static const Json null;
  return list.is_array() && !list.empty() ? list[0] : null;
}

// The uid of a file's name, if it is one of a claim.
std::optional<std::string> UidOf(const std::string& file) {
  absl::string_view name = file;
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::ConsumeSuffix(&name, kSuffix)) return std::nullopt;
  std::string uid(name);
  if (!IsUid(uid)) return std::nullopt;
  return uid;
}

absl::StatusOr<CdiClaim> ReadClaim(const std::string& path, const std::optional<std::string>& uid) {
  if (!uid) return Refuse("its name has no uid");
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  ASSIGN_OR_RETURN(CdiClaim claim, ReadCdiText(text));
  if (claim.uid != *uid) return Refuse("it is for another claim than its name says");
  return claim;
}

}  // namespace

std::string CdiText(const CdiClaim& claim) {
  return JsonText(
             {{"cdiVersion", kVersion}, {"kind", kCdiKind}, {"devices", Json::array({DeviceOf(claim)})}}) +
         "\n";
}

absl::StatusOr<CdiClaim> ReadCdiText(std::string_view text) {
  ASSIGN_OR_RETURN(const Json file, ParseJson(text, kMaxFile));
  const Json& device = First(Member(file, "devices"));
  const Json& notes = Member(device, "annotations");
  CdiClaim claim;
  claim.uid = TextMember(device, "name");
  claim.name_space = TextMember(notes, kNamespaceNote);
  claim.name = TextMember(notes, kNameNote);
  if (const std::string_view pods = TextMember(notes, kPodsNote); !pods.empty())
    claim.pods = absl::StrSplit(View(pods), ',');
  claim.door = TextMember(First(Member(Member(device, "containerEdits"), "mounts")), "hostPath");
  RETURN_IF_ERROR(CheckClaim(claim));
  if (CdiText(claim) != text) return Refuse("it is not as this version of the agent writes it");
  return claim;
}

std::string CdiFiles::IdOf(std::string_view uid) { return absl::StrCat(kCdiKind, "=", View(uid)); }

std::string CdiFiles::PathOf(std::string_view uid) const {
  return absl::StrCat(folder_, "/", kPrefix, View(uid), kSuffix);
}

absl::Status CdiFiles::Open() const {
  RETURN_IF_ERROR(MakeFolder(folder_));
  ASSIGN_OR_RETURN(const std::vector<std::string> unfinished, NamesIn(folder_, kTemporaryPrefix));
  for (const std::string& name : unfinished) {
    const std::string path = absl::StrCat(folder_, "/", name);
    if (unlink(path.c_str()) != 0 && errno != ENOENT) return Failed("remove", path, errno);
  }
  if (access(folder_.c_str(), W_OK) != 0) return Failed("write to the folder", folder_, errno);
  return absl::OkStatus();
}

absl::Status CdiFiles::Write(const CdiClaim& claim) const {
  RETURN_IF_ERROR(CheckClaim(claim));
  const std::string path = PathOf(claim.uid);
  const std::string pattern = absl::StrCat(folder_, "/", kTemporaryPrefix, claim.uid, ".XXXXXX");
  std::optional<TemporaryFile> file(pattern);
  if (!file->valid() && errno == ENOENT) {
    RETURN_IF_ERROR(MakeFolder(folder_));
    file.emplace(pattern);
  }
  if (!file->valid()) return Failed("create a file in", folder_, errno);
  const int error = file->Finish(CdiText(claim), path);
  if (error != 0) return Failed("write", path, error);
  return absl::OkStatus();
}

absl::Status CdiFiles::Remove(std::string_view uid) const {
  if (!IsUid(uid)) return Refuse("no claim has such a uid");
  const std::string path = PathOf(uid);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return Failed("remove", path, errno);
  return absl::OkStatus();
}

absl::StatusOr<CdiClaim> CdiFiles::Read(std::string_view uid) const {
  if (!IsUid(uid)) return Refuse("no claim has such a uid");
  return ReadClaim(PathOf(uid), std::string(uid));
}

absl::StatusOr<CdiFiles::Listing> CdiFiles::List() const {
  Listing listing;
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(folder_, kPrefix);
  if (absl::IsNotFound(names.status())) return listing;
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const std::optional<std::string> uid = UidOf(name);
    absl::StatusOr<CdiClaim> claim = ReadClaim(absl::StrCat(folder_, "/", name), uid);
    if (claim.ok())
      listing.claims.push_back(*std::move(claim));
    else if (!absl::IsNotFound(claim.status()))  // removed meanwhile
      listing.unreadable.push_back({name, std::string(claim.status().message()), uid.value_or("")});
  }
  return listing;
}

}  // namespace xpud::agent::kubernetes
