#include "sdk/client/client_name.h"

#include <cerrno>
#include <cstdlib>

#include "proto/base/text.h"
#include "proto/transport/handshake.h"

namespace xpud::client {
namespace {

constexpr size_t kMaxBytes = sizeof(transport::Hello::client_name) - 1;  // and a NUL

}  // namespace

std::string ClientName(const std::string& given) {
  const char* chosen = std::getenv("XPUD_CLIENT_NAME");
  if (chosen != nullptr && *chosen != '\0') return PrintableText(chosen, kMaxBytes);
  return PrintableText(given.empty() ? program_invocation_short_name : given, kMaxBytes);
}

}  // namespace xpud::client
