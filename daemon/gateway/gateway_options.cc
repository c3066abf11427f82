#include "daemon/gateway/gateway_options.h"

#include <map>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/telemetry/endpoint.h"
#include "proto/base/status_macros.h"
#include "sdk/client/remote.h"

namespace xpud::remote {

const char kGatewayUsage[] =
    R"(xpud-gateway: lets clients on other machines use this machine's xpud daemon (XPUD_ADDRESS=HOST:PORT there).

  --listen HOST:PORT      address to listen on (default 127.0.0.1:7070; port 0: any free port)
  --socket PATH           the daemon's socket (default: as clients find it)
  --token-file PATH       file with tokens; clients must present one of them (set XPUD_TOKEN_FILE there); mode 0600. Lines
                          "TENANT TOKEN", or "TOKEN" for this gateway's own user. Read anew for each client.
  --tls-cert, --tls-key PATH
                          the gateway's certificate and key, in PEM; turns on TLS (set XPUD_TLS_CA on clients). SIGHUP reads
                          them, and the next file, again; sessions go on
  --tls-client-ca PATH    clients must have a certificate signed by one of these (XPUD_TLS_CERT, XPUD_TLS_KEY there). Its common
                          name is the tenant, unless a token names one
  --operators NAMES       comma-separated tenants that may use the control plane (xpuctl), besides this gateway's user
  --sessions COUNT        maximum number of sessions (default 256); one tenant can have three quarters of them
  --hold SECONDS          how long to keep the session of a client that lost its connection, if the client asks for it
                          (XPUD_RECONNECT_SECONDS there); default 30; 0: not at all
  --metrics-listen [HOST:]PORT|unix:PATH
                          serve metrics for Prometheus over HTTP at /metrics, without authentication: when certificates end
  --ready-fd FD           write the port to this descriptor when clients can connect
  --help, --version

Either --token-file or --tls-client-ca is required. The daemon lets this gateway set the tenants of sessions if it runs as the
daemon's user, as root, or as the user of xpud's --gateway-user.
)";

namespace {

absl::Status Check(const GatewayOptions& options) {
  if (!client::IsRemoteAddress(options.listen))
    return absl::InvalidArgumentError(absl::StrCat("--listen takes HOST:PORT, not ", options.listen));
  RETURN_IF_ERROR(client::CheckPort(options.listen, /*least=*/0));
  if (!options.metrics_listen.empty()) RETURN_IF_ERROR(telemetry::CheckAddress(options.metrics_listen));
  if (options.tls_cert.empty() != options.tls_key.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key must be given together");
  if (!options.tls_client_ca.empty() && !options.has_tls())
    return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert and --tls-key");
  if (options.token_file.empty() && options.tls_client_ca.empty())
    return absl::InvalidArgumentError(
        "anybody who reaches the port could use the devices: give --token-file or --tls-client-ca");
  return absl::OkStatus();
}

struct Number {
  int* value;
  int least, most;

  bool Set(const char* text) const {
    int number;
    if (!absl::SimpleAtoi(text, &number) || number < least || number > most) return false;
    *value = number;
    return true;
  }
};

}  // namespace

absl::StatusOr<GatewayOptions> ParseGatewayOptions(std::span<char* const> arguments) {
  GatewayOptions options;
  const std::map<std::string_view, std::string*> texts = {{"--listen", &options.listen},
                                                          {"--socket", &options.socket},
                                                          {"--token-file", &options.token_file},
                                                          {"--tls-cert", &options.tls_cert},
                                                          {"--tls-key", &options.tls_key},
                                                          {"--tls-client-ca", &options.tls_client_ca},
                                                          {"--metrics-listen", &options.metrics_listen}};
  const std::map<std::string_view, Number> numbers = {{"--sessions", {&options.sessions, 1, 4096}},
                                                      {"--hold", {&options.hold_seconds, 0, 3600}},
                                                      {"--ready-fd", {&options.ready_fd, 0, 1 << 20}}};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string name = arguments[i];
    if (name == "--help" || name == "--version") {
      (name == "--help" ? options.help : options.version) = true;
      continue;
    }
    const auto text = texts.find(name);
    const auto number = numbers.find(name);
    if (text == texts.end() && number == numbers.end() && name != "--operators")
      return absl::InvalidArgumentError(absl::StrCat("unknown argument ", name, "; see --help"));
    if (++i == arguments.size())
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value; see --help"));
    if (text != texts.end()) {
      *text->second = arguments[i];
    } else if (name == "--operators") {
      options.operators = absl::StrSplit(arguments[i], ',', absl::SkipEmpty());
    } else if (!number->second.Set(arguments[i])) {
      return absl::InvalidArgumentError(absl::StrCat(name, " must be a number from ", number->second.least,
                                                     " to ", number->second.most, ", not ", arguments[i]));
    }
  }
  if (!options.help && !options.version) RETURN_IF_ERROR(Check(options));
  return options;
}

}  // namespace xpud::remote
