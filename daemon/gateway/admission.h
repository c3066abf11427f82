// Who a call over the network is from: a tenant, which a token or a client's certificate names. Any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace xpud::remote {

// A token of the token file, and the tenant who shows it; no name: the gateway's own user.
struct Token {
  std::string tenant;
  std::string text;
};

// Lines "TOKEN" or "TENANT TOKEN"; empty lines and those that begin with '#' say nothing. InvalidArgument
// names the line and what is wrong with it.
absl::StatusOr<std::vector<Token>> ParseTokens(std::string_view text);

class Admission {
 public:
  struct Options {
    std::string token_file;              // clients must show one of these; empty: none
    bool certificates = false;           // clients have shown one, whose common name is their tenant's
    std::vector<std::string> operators;  // tenants who may use the control plane
  };

  explicit Admission(Options options) : options_(std::move(options)) {}

  // Whether the token file can be used.
  absl::Status Check() const;
  // The tenant who calls; empty: the gateway's own user. The file is read anew, so that a token that is taken
  // out of it opens nothing from then on. Unauthenticated: no token or certificate, or a wrong one.
  // Unavailable: the file cannot be used now.
  absl::StatusOr<std::string> Identify(const grpc::ServerContextBase& context) const;
  // As Identify; PermissionDenied: this tenant may not use the control plane.
  absl::Status AdmitOperator(const grpc::ServerContextBase& context) const;

  bool has_tokens() const { return !options_.token_file.empty(); }

 private:
  absl::StatusOr<std::string> TenantOfToken(const grpc::ServerContextBase& context) const;

  const Options options_;
};

}  // namespace xpud::remote
