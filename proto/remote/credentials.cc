#include "proto/remote/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/status_macros.h"
#include "proto/base/unique_fd.h"
#include "proto/remote/commands.h"

namespace xpud::remote {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<UniqueFd> Open(const std::string& path, struct stat& info) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() || fstat(file.get(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is not a file"));
  return file;
}

absl::StatusOr<std::string> ReadOpen(const std::string& path, const UniqueFd& file) {
  std::string text(kMaxFileBytes + 1, '\0');
  size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<size_t>(got)) {
    got = read(file.get(), text.data() + size, text.size() - size);
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  }
  if (size > kMaxFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, " is larger than ", kMaxFileBytes, " bytes"));
  text.resize(size);
  return text;
}

}  // namespace

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  struct stat info;
  ASSIGN_OR_RETURN(const UniqueFd file, Open(path, info));
  return ReadOpen(path, file);
}

absl::StatusOr<std::string> ReadSecret(const std::string& path) {
  struct stat info;
  ASSIGN_OR_RETURN(const UniqueFd file, Open(path, info));
  if ((info.st_mode & 077) != 0 || (info.st_uid != geteuid() && info.st_uid != 0)) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s belongs to uid %d with mode %04o; a secret has to be a file of uid %d that no other user can "
        "read: chmod 600",
        path, info.st_uid, info.st_mode & 07777, geteuid()));
  }
  ASSIGN_OR_RETURN(std::string text, ReadOpen(path, file));
  absl::StripAsciiWhitespace(&text);
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return text;
}

absl::StatusOr<Credentials> ClientCredentials() {
  Credentials credentials;
  if (const std::string path = Environment("XPUD_TOKEN_FILE"); !path.empty()) {
    ASSIGN_OR_RETURN(credentials.token, ReadSecret(path));
  }
  const std::string ca = Environment("XPUD_TLS_CA"), certificate = Environment("XPUD_TLS_CERT"),
                    key = Environment("XPUD_TLS_KEY");
  if (certificate.empty() != key.empty() || (ca.empty() && !key.empty()))
    return absl::InvalidArgumentError(
        "XPUD_TLS_CERT, XPUD_TLS_KEY and XPUD_TLS_CA (which checks the daemon) must be set together");
  if (ca.empty()) {
    credentials.channel = grpc::InsecureChannelCredentials();
    credentials.kind = "without TLS";
    return credentials;
  }
  grpc::SslCredentialsOptions options;
  ASSIGN_OR_RETURN(options.pem_root_certs, ReadWhole(ca));
  if (!key.empty()) {
    ASSIGN_OR_RETURN(options.pem_private_key, ReadSecret(key));
    ASSIGN_OR_RETURN(options.pem_cert_chain, ReadWhole(certificate));
  }
  credentials.channel = grpc::SslCredentials(options);
  credentials.kind = "with TLS";
  return credentials;
}

grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection per session
  return arguments;
}

}  // namespace xpud::remote
