// How a client shows who it is, and how it knows the daemon: $XPUD_TOKEN_FILE names a file with a token;
// $XPUD_TLS_CA one with the certificates that the daemon's is checked against (TLS is used then), and
// $XPUD_TLS_CERT and $XPUD_TLS_KEY the client's own. Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace xpud::remote {

struct Credentials {
  std::shared_ptr<grpc::ChannelCredentials> channel;
  std::string token;  // empty: none
  std::string kind;   // for people
};

// From the environment. InvalidArgument, PermissionDenied or NotFound: a file that is named cannot be used.
absl::StatusOr<Credentials> ClientCredentials();

// Of both ends: a connection that is cut off without a word is found within 15 s.
grpc::ChannelArguments ChannelArguments();

// A file that nobody but its owner may read: a token or a key.
absl::StatusOr<std::string> ReadSecret(const std::string& path);
absl::StatusOr<std::string> ReadWhole(const std::string& path);

}  // namespace xpud::remote
