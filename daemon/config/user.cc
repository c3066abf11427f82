#include "daemon/config/user.h"

#include <grp.h>
#include <pwd.h>

#include <array>
#include <charconv>

namespace xpud {
namespace {

std::optional<uint32_t> ParseNumber(const std::string& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<uint32_t> ParseUser(const std::string& text) {
  std::array<char, 4096> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (getpwnam_r(text.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_uid;
  return ParseNumber(text);
}

std::optional<uint32_t> ParseGroup(const std::string& text) {
  std::array<char, 65536> buffer;  // with the members' names
  group entry;
  group* found = nullptr;
  if (getgrnam_r(text.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->gr_gid;
  return ParseNumber(text);
}

std::string UserName(uint32_t uid) {
  std::array<char, 4096> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_name;
  return std::to_string(uid);
}

}  // namespace xpud
