#include "daemon/gateway/admission.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/remote/commands.h"
#include "proto/remote/credentials.h"
#include "proto/transport/handshake.h"

namespace xpud::remote {
namespace {

constexpr std::string_view kScheme = "Bearer ";

// Compares in constant time.
bool IsSame(std::string_view a, std::string_view b) {
  unsigned differs = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    differs |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[b.empty() ? 0 : i % b.size()]);
  return differs == 0;
}

absl::Status CheckTenantName(const std::string& name) {
  const bool allowed = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' || c == '@';
  });
  if (allowed && !name.empty() && name.size() <= transport::kMaxTenantBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", PrintableText(name, 80),
                   "\" cannot name a tenant; allowed are ASCII letters, digits, '.', '_', '-' and '@', 1 to ",
                   transport::kMaxTenantBytes, " characters"));
}

absl::StatusOr<std::string> TenantOfCertificate(const grpc::ServerContextBase& context) {
  const auto names = context.auth_context()->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.size() != 1)
    return absl::UnauthenticatedError(
        "the client's certificate has no common name, which would name its tenant");
  std::string name(names[0].data(), names[0].size());
  if (const absl::Status status = CheckTenantName(name); !status.ok())
    return absl::UnauthenticatedError(absl::StrCat("the certificate's common name ", status.message()));
  return name;
}

}  // namespace

absl::StatusOr<std::vector<Token>> ParseTokens(std::string_view text) {
  std::vector<Token> tokens;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const auto wrong = [&](const auto& why) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", why));
    };
    if (words.size() > 2) return wrong("more than a tenant and a token");
    if (words.size() == 2) {
      if (const absl::Status status = CheckTenantName(words[0]); !status.ok()) return wrong(status.message());
    }
    const bool known = std::any_of(tokens.begin(), tokens.end(),
                                   [&](const Token& token) { return token.text == words.back(); });
    if (known) return wrong("the token is in an earlier line already");
    tokens.push_back({words.size() == 2 ? words[0] : "", words.back()});
  }
  if (tokens.empty()) return absl::InvalidArgumentError("the token file has no token");
  return tokens;
}

absl::Status Admission::Check() const {
  if (!has_tokens()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string text, ReadSecret(options_.token_file));
  const auto tokens = ParseTokens(text);
  if (tokens.ok()) return absl::OkStatus();
  return absl::Status(tokens.status().code(),
                      absl::StrCat(options_.token_file, ": ", tokens.status().message()));
}

absl::StatusOr<std::string> Admission::TenantOfToken(const grpc::ServerContextBase& context) const {
  const auto text = ReadSecret(options_.token_file);
  const auto tokens = text.ok() ? ParseTokens(*text) : text.status();
  if (!tokens.ok()) {
    spdlog::error("token_file_unusable path={} error=\"{}\"", options_.token_file,
                  std::string(tokens.status().message()));
    return absl::UnavailableError("the gateway cannot read its tokens; see its log");
  }
  const auto& metadata = context.client_metadata();
  const auto shown = metadata.find(kAuthorization);
  std::string_view token;
  if (shown != metadata.end()) token = {shown->second.data(), shown->second.size()};
  const bool has_scheme = token.starts_with(kScheme);
  if (has_scheme) token.remove_prefix(kScheme.size());
  std::optional<std::string> tenant;
  for (const Token& known : *tokens) {
    if (IsSame(token, known.text)) tenant = known.tenant;
  }
  if (has_scheme && tenant) return *tenant;
  return absl::UnauthenticatedError(
      "the token is missing or wrong; set XPUD_TOKEN_FILE to a file with the token");
}

absl::StatusOr<std::string> Admission::Identify(const grpc::ServerContextBase& context) const {
  std::string tenant;
  if (has_tokens()) {
    ASSIGN_OR_RETURN(tenant, TenantOfToken(context));
  }
  if (!tenant.empty() || !options_.certificates) return tenant;
  return TenantOfCertificate(context);
}

absl::Status Admission::AdmitOperator(const grpc::ServerContextBase& context) const {
  ASSIGN_OR_RETURN(const std::string tenant, Identify(context));
  if (tenant.empty() ||
      std::find(options_.operators.begin(), options_.operators.end(), tenant) != options_.operators.end())
    return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      tenant,
      " may use the devices, but not the control plane; name the tenant in the gateway's --operators"));
}

}  // namespace xpud::remote
