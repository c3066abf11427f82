#include "sdk/client/remote.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/status_macros.h"
#include "sdk/client/helper_process.h"

namespace xpud::client {
namespace {

absl::StatusOr<int64_t> ReconnectSeconds(const ConnectOptions& options) {
  constexpr char kVariable[] = "XPUD_RECONNECT_SECONDS";
  const char* const text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return options.reconnect.count();
  int64_t seconds = 0;
  if (absl::SimpleAtoi(text, &seconds) && seconds >= 0) return seconds;
  return absl::InvalidArgumentError(absl::StrCat(kVariable, " is a number of seconds, not \"", text, "\""));
}

}  // namespace

bool IsRemoteAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  return address.find('/') == std::string::npos && colon != std::string::npos && colon != 0 &&
         colon + 1 < address.size() &&
         std::all_of(address.begin() + static_cast<ptrdiff_t>(colon) + 1, address.end(), absl::ascii_isdigit);
}

absl::Status CheckPort(const std::string& address, int least) {
  constexpr int kMaxPort = 65'535;
  const std::string text = address.substr(address.rfind(':') + 1);
  int port = -1;
  if (absl::SimpleAtoi(text, &port) && port >= least && port <= kMaxPort) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("port ", text, " of ", address, " is not allowed; use ", least, " to ", kMaxPort));
}

absl::StatusOr<UniqueFd> StartConnector(const std::string& address, const ConnectOptions& options) {
  RETURN_IF_ERROR(CheckPort(address));
  ASSIGN_OR_RETURN(const int64_t reconnect, ReconnectSeconds(options));
  ASSIGN_OR_RETURN(const std::string binary, FindBinary("xpud-connect", "XPUD_CONNECT"));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return DescriptorError("socketpair");
  UniqueFd here(ends[0]), there(ends[1]);
  // Before our own patience ends, so that we hear why.
  const auto patience = options.timeout.count() * 9 / 10;
  RETURN_IF_ERROR(RunInBackground(binary,
                                  {address, absl::StrCat(patience), absl::StrCat(reconnect), "--background"},
                                  "/dev/null", there.get()));
  return here;
}

}  // namespace xpud::client
