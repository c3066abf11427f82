// xpud-gateway: a separate process between the network and the daemon. It is an ordinary client of the
// daemon, so the daemon has no network sockets.
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "daemon/gateway/admission.h"
#include "daemon/gateway/control_relay.h"
#include "daemon/gateway/gateway_options.h"
#include "daemon/gateway/stream_server.h"
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

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const GatewayOptions& options) {
  if (!options.has_tls()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions tls(options.tls_client_ca.empty()
                                            ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                            : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ASSIGN_OR_RETURN(pair.private_key, ReadSecret(options.tls_key));
  ASSIGN_OR_RETURN(pair.cert_chain, ReadWhole(options.tls_cert));
  tls.pem_key_cert_pairs.push_back(std::move(pair));
  if (!options.tls_client_ca.empty()) {
    ASSIGN_OR_RETURN(tls.pem_root_certs, ReadWhole(options.tls_client_ca));
  }
  return grpc::SslServerCredentials(tls);
}

bool IsLoopback(const std::string& listen) {
  return listen.starts_with("127.") || listen.starts_with("[::1]:") || listen.starts_with("localhost:");
}

absl::Status Run(const GatewayOptions& options, const sigset_t& ends) {
  RETURN_IF_ERROR(CheckThreadsLeft(kGrpcThreads, "gRPC"));  // which aborts or hangs without them
  const Admission admission({options.token_file, !options.tls_client_ca.empty(), options.operators});
  RETURN_IF_ERROR(admission.Check());
  ASSIGN_OR_RETURN(const auto credentials, ServerCredentials(options));
  StreamServer service(admission, {options.socket, options.sessions, options.tenant_sessions(),
                                   std::chrono::seconds(options.hold_seconds)});
  const ControlRelay control(admission, options.socket);
  grpc::ServerBuilder builder;
  CallServer calls(builder, 2 * options.sessions + kOtherCalls);
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
  int signal = 0;
  sigwait(&ends, &signal);
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
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  unsetenv("XPUD_CLIENT_NAME");  // each session uses its client's name
  const absl::Status status = Run(*options, ends);
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
