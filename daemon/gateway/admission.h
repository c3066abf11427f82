// Identifies the tenant of a network call by its token or client certificate. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::remote {

// A line of the token file: a token, and the tenant that it identifies; no tenant: the gateway's own user.
struct Token {
  std::string tenant;
  std::string text;
};

// Parses lines "TOKEN" or "TENANT TOKEN"; empty lines and lines that begin with '#' are ignored. Returns
// InvalidArgument with the line and the error.
absl::StatusOr<std::vector<Token>> ParseTokens(std::string_view text);

class Admission {
 public:
  struct Options {
    std::string token_file;              // clients must present one of its tokens; empty: none
    bool certificates = false;           // clients must have a certificate; its common name is the tenant
    std::vector<std::string> operators;  // tenants that may use the control plane
  };

  explicit Admission(Options options) : options_(std::move(options)) {}

  // Returns an error if the token file cannot be used.
  absl::Status Check() const;
  // Returns the caller's tenant; empty: the gateway's own user. Reads the file anew, so that removed tokens
  // are invalid at once. Returns Unauthenticated for a missing or wrong token or certificate, and Unavailable
  // if the file cannot be read.
  absl::StatusOr<std::string> Identify(const grpc::ServerContextBase& context) const;
  // Like Identify, but returns PermissionDenied if the tenant may not use the control plane.
  absl::Status AdmitOperator(const grpc::ServerContextBase& context) const;

  bool has_tokens() const { return !options_.token_file.empty(); }

 private:
  absl::StatusOr<std::string> TenantOfToken(const grpc::ServerContextBase& context) const;

  const Options options_;
};

}  // namespace xpud::remote
