// A client's credentials, from files that the environment names. XPUD_TOKEN_FILE: a token. XPUD_TLS_CA: the
// certificates that the server's certificate is checked against; this turns TLS on. XPUD_TLS_CERT and
// XPUD_TLS_KEY: the client's own certificate and key. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace xpud::remote {

struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::string token;  // empty: none
  std::string kind;   // for messages: "with TLS"
};

// Reads the credentials. Returns InvalidArgument, PermissionDenied or NotFound if a named file cannot be
// used.
absl::StatusOr<Credentials> ClientCredentials();

// Keep-alive arguments for both ends: a broken connection is detected within 15 s.
grpc::ChannelArguments ChannelArguments();

// Reads a token or a key. The file must be readable by its owner only.
absl::StatusOr<std::string> ReadSecret(const std::string& path);
absl::StatusOr<std::string> ReadWhole(const std::string& path);

}  // namespace xpud::remote
