// xpud-gateway: a separate process between the network and the daemon. It is an ordinary client of the
// daemon, so the daemon has no network sockets.
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "daemon/gateway/admission.h"
#include "daemon/gateway/certificates.h"
#include "daemon/gateway/control_relay.h"
#include "daemon/gateway/gateway_options.h"
#include "daemon/gateway/stream_server.h"
#include "daemon/telemetry/exposition.h"
#include "daemon/telemetry/metrics_server.h"
#include "daemon/telemetry/stderr_sink.h"
#include "proto/base/output.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/remote/call_server.h"
#include "proto/remote/commands.h"
#include "proto/remote/credentials.h"
#include "proto/remote/heap.h"

namespace xpud::remote {
namespace {

constexpr int kFailure = 1, kUsageError = 2;
constexpr int kGrpcThreads = 12;  // that it may start by itself
constexpr int kOtherCalls = 64;   // in addition to sessions and to calls that open one

bool IsLoopback(const std::string& listen) {
  return listen.starts_with("127.") || listen.starts_with("[::1]:") || listen.starts_with("localhost:");
}

std::string MetricsText(const Certificates* certificates, telemetry::Format format) {
  using enum telemetry::Type;
  telemetry::Exposition out(format);
  out.Begin({"xpud_gateway_build_info", kGauge, telemetry::Scale::kOne,
             "Always 1; the label is the gateway's version."});
  out.Add(telemetry::LabelsText({{"version", XPUD_VERSION}}), 1);
  if (certificates != nullptr) {
    out.Begin({"xpud_gateway_certificate_end_timestamp_seconds", kGauge, telemetry::Scale::kOne,
               "When the certificate in this file expires."});
    for (const auto& [path, end] : certificates->Ends())
      out.Add(telemetry::LabelsText({{"path", path}}),
              static_cast<uint64_t>(std::max<int64_t>(absl::ToUnixSeconds(end), 0)));
  }
  return std::move(out).Finish();
}

// Returns null without --metrics-listen.
absl::StatusOr<std::unique_ptr<telemetry::MetricsServer>> ServeMetrics(const GatewayOptions& options,
                                                                       const Certificates* certificates) {
  if (options.metrics_listen.empty()) return nullptr;
  ASSIGN_OR_RETURN(telemetry::Endpoint endpoint, telemetry::ListenAt(options.metrics_listen));
  spdlog::info("metrics address={}", endpoint.address);
  return telemetry::MetricsServer::Start(std::move(endpoint), [certificates] {
    return [certificates](telemetry::Format format) { return MetricsText(certificates, format); };
  });
}

// SIGHUP: what is in the files from now on is used for new connections. Tokens are read for each client
// anyway.
void Reload(const Admission& admission, Certificates* certificates) {
  absl::Status status = admission.Check();
  if (certificates != nullptr) status.Update(certificates->Reload());
  if (status.ok())
    spdlog::info("reloaded");
  else
    spdlog::error("reload_refused error=\"{}\"", std::string(status.message()));
}

// Returns at SIGINT or SIGTERM.
void ReloadUntilTheEnd(const sigset_t& signals, const Admission& admission, Certificates* certificates) {
  constexpr timespec kDay = {24 * 3600, 0};
  while (true) {
    if (certificates != nullptr) certificates->LogExpiry();
    int signal = 0;
    do {
      signal = sigtimedwait(&signals, nullptr, &kDay);
    } while (signal < 0 && errno == EINTR);
    if (signal == SIGINT || signal == SIGTERM) return;
    if (signal == SIGHUP) Reload(admission, certificates);
  }
}

absl::Status Run(const GatewayOptions& options, const sigset_t& signals) {
  RETURN_IF_ERROR(CheckThreadsLeft(kGrpcThreads, "gRPC"));  // which aborts or hangs without them
  const Admission admission({options.token_file, !options.tls_client_ca.empty(), options.operators});
  RETURN_IF_ERROR(admission.Check());
  std::unique_ptr<Certificates> certificates;  // null: without TLS
  if (options.has_tls()) {
    ASSIGN_OR_RETURN(certificates,
                     Certificates::Load({options.tls_cert, options.tls_key, options.tls_client_ca}));
  }
  const auto credentials =
      certificates != nullptr ? certificates->ServerCredentials() : grpc::InsecureServerCredentials();
  StreamServer service(admission, {options.socket, options.sessions, options.tenant_sessions(),
                                   std::chrono::seconds(options.hold_seconds)});
  const ControlRelay control(admission, options.socket);
  grpc::ServerBuilder builder;
  CallServer calls(builder, 2 * options.sessions + kOtherCalls);
  ASSIGN_OR_RETURN(const auto metrics, ServeMetrics(options, certificates.get()));
  calls.AddMethod(kSessionMethod, [&](ServerCall& call) { return service.Session(call); });
  for (const std::string& method : control.methods())
    calls.AddMethod(method, [&](ServerCall& call) { return control.Relay(call); });
  int port = 0;
  builder.AddListeningPort(options.listen, credentials, &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  RETURN_IF_ERROR(service.status());
  const auto server = builder.BuildAndStart();
  if (server == nullptr || port == 0)
    return absl::UnavailableError(absl::StrCat("cannot listen at ", options.listen));
  RETURN_IF_ERROR(calls.Start());
  spdlog::info("serving version={} listen={} port={} tls={} token={} client_certificates={}", XPUD_VERSION,
               options.listen, port, options.has_tls(), !options.token_file.empty(),
               !options.tls_client_ca.empty());
  if (!options.has_tls() && !IsLoopback(options.listen))
    spdlog::warn("unencrypted danger=\"the token and all data are sent unencrypted: use --tls-cert\"");
  if (options.ready_fd >= 0) dprintf(options.ready_fd, "%d\n", port);
  ReloadUntilTheEnd(signals, admission, certificates.get());
  spdlog::info("ending");
  calls.Stop(*server, std::chrono::seconds(1));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const auto options = ParseGatewayOptions({argv + 1, static_cast<size_t>(argc - 1)});
  if (!options.ok()) {
    std::fprintf(stderr, "xpud-gateway: %s\n", std::string(options.status().message()).c_str());
    return kUsageError;
  }
  if (options->help || options->version) {
    std::fputs(options->help ? kGatewayUsage : "xpud-gateway " XPUD_VERSION "\n", stdout);
    return FinishOutput("xpud-gateway") ? 0 : kFailure;
  }
  auto logger = std::make_shared<spdlog::logger>("xpud-gateway", telemetry::StandardErrorSink());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  unsetenv("XPUD_CLIENT_NAME");  // each session uses its client's name
  const absl::Status status = Run(*options, signals);
  if (status.ok()) return 0;
  spdlog::error("failed error=\"{}\"", std::string(status.message()));
  return kFailure;
}

}  // namespace
}  // namespace xpud::remote

int main(int argc, char** argv) {
  xpud::remote::KeepFreedMemory();
  return xpud::remote::Main(argc, argv);
}
