#include "daemon/config/user.h"

#include <pwd.h>

#include <array>
#include <charconv>

namespace xpud {

std::optional<uint32_t> ParseUser(const std::string& text) {
  std::array<char, 4096> buffer;
  passwd entry;
  passwd* found = nullptr;
  if (getpwnam_r(text.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return found->pw_uid;
  uint32_t uid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), uid);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return uid;
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
