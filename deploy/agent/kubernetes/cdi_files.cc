#include "deploy/agent/kubernetes/cdi_files.h"

#include <dirent.h>
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
#include "deploy/agent/core/files.h"
#include "deploy/agent/kubernetes/json.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

// The first version with annotations.
constexpr char kVersion[] = "0.6.0";
constexpr char kContainerPath[] = "/run/xpud";
constexpr char kPrefix[] = "xpud.dev-claim_";
constexpr char kSuffix[] = ".json";
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

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};

// The names of this driver's files in the folder, in order; unfinished ones too.
absl::StatusOr<std::vector<std::string>> NamesIn(const std::string& folder) {
  const std::unique_ptr<DIR, CloseFolder> opened(opendir(folder.c_str()));
  if (!opened) return Failed("read the folder", folder, errno);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(opened.get()))
    if (std::string_view(entry->d_name).starts_with(kPrefix)) names.emplace_back(entry->d_name);
  if (errno != 0) return Failed("read the folder", folder, errno);
  std::ranges::sort(names);
  return names;
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
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxFile));
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
  RETURN_IF_ERROR(MakeFolders(folder_));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(folder_));
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(folder_, "/", name);
    if (name.ends_with(kUnfinished) && unlink(path.c_str()) != 0 && errno != ENOENT)
      return Failed("remove", path, errno);
  }
  if (access(folder_.c_str(), W_OK) != 0) return Failed("write to the folder", folder_, errno);
  return absl::OkStatus();
}

absl::Status CdiFiles::Write(const CdiClaim& claim) const {
  RETURN_IF_ERROR(CheckClaim(claim));
  // Runtimes read only *.json and *.yaml, so that an unfinished file is none of theirs.
  absl::Status written = ReplaceFile(PathOf(claim.uid), CdiText(claim));
  if (!absl::IsNotFound(written)) return written;
  RETURN_IF_ERROR(MakeFolders(folder_));
  return ReplaceFile(PathOf(claim.uid), CdiText(claim));
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
  const absl::StatusOr<std::vector<std::string>> names = NamesIn(folder_);
  if (absl::IsNotFound(names.status())) return listing;
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    if (name.ends_with(kUnfinished)) continue;
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
