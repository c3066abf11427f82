#include "proto/transport/profile.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "proto/base/mapping.h"
#include "proto/base/status_macros.h"

namespace xpud::transport {
namespace {

absl::Status Invalid() { return absl::InternalError("the xpud daemon sent an invalid profile"); }

}  // namespace

absl::StatusOr<UniqueFd> WriteProfile(const SessionProfile& profile) {
  std::string names;
  for (const std::string& name : profile.names) names.append(name).push_back('\0');
  const ProfileHeader header = {profile.records.size(), profile.overwritten, profile.names.size(),
                                names.size()};
  const size_t record_bytes = profile.records.size() * sizeof(ProfileRecord);
  const size_t bytes = sizeof(header) + record_bytes + names.size();
  ASSIGN_OR_RETURN(UniqueFd memory, CreateSealedMemfd("xpud-profile", bytes));
  ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Map(memory, bytes, Access::kReadWrite));
  std::byte* at = mapping.data();
  std::memcpy(at, &header, sizeof(header));
  at += sizeof(header);
  if (record_bytes != 0) std::memcpy(at, profile.records.data(), record_bytes);
  std::memcpy(at + record_bytes, names.data(), names.size());
  return memory;
}

absl::StatusOr<SessionProfile> ReadProfile(const UniqueFd& memory) {
  struct stat info = {};
  if (fstat(memory.get(), &info) != 0 || info.st_size < static_cast<off_t>(sizeof(ProfileHeader)))
    return Invalid();
  const size_t bytes = static_cast<size_t>(info.st_size);
  ASSIGN_OR_RETURN(const Mapping mapping, Mapping::Map(memory, bytes, Access::kReadOnly));
  ProfileHeader header;
  std::memcpy(&header, mapping.data(), sizeof(header));
  const size_t room = bytes - sizeof(header);
  if (header.commands > room / sizeof(ProfileRecord) ||
      header.name_bytes > room - header.commands * sizeof(ProfileRecord) || header.names == 0)
    return Invalid();
  SessionProfile profile;
  profile.overwritten = header.overwritten;
  profile.records.resize(header.commands);
  const std::byte* const records = mapping.data() + sizeof(header);
  if (header.commands != 0)
    std::memcpy(profile.records.data(), records, header.commands * sizeof(ProfileRecord));
  const char* const names = reinterpret_cast<const char*>(records) + header.commands * sizeof(ProfileRecord);
  const char* const end = names + header.name_bytes;
  for (const char* name = names; name != end;) {
    const char* const stop = std::find(name, end, '\0');
    if (stop == end) return Invalid();
    profile.names.emplace_back(name, stop);
    name = stop + 1;
  }
  const auto is_named = [&](const ProfileRecord& record) { return record.kernel < profile.names.size(); };
  if (profile.names.size() != header.names || !std::ranges::all_of(profile.records, is_named))
    return Invalid();
  return profile;
}

}  // namespace xpud::transport
