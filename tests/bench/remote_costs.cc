// The cost of a session over a gateway, in turns with a bare gRPC stream of the same frames; copies also
// beside a plain TCP connection, all on loopback. Commands, and ops with their results' memory (three
// commands each), are also compared with a session over shared memory.
//
//   remote_costs SOCKET   against the daemon at SOCKET and its gateway at $XPUD_ADDRESS; prints a line of
//   JSON
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/rpc_service_method.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <grpcpp/support/sync_stream.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "proto/base/unique_fd.h"
#include "proto/remote/frame.h"
#include "proto/remote/heap.h"
#include "tests/bench/nop_stream.h"
#include "tests/bench/rows.h"
#include "xpud/tensor.h"

namespace xpud::bench {
namespace {

constexpr size_t kBytes = 64 << 20, kPieceBytes = 512 << 10;  // the client library splits uploads like this

using grpc::ByteBuffer;

// Stores payloads in memory of their size, and answers frames without a payload.
class Echo final : public grpc::Service {
 public:
  using Stream = grpc::ServerReaderWriter<ByteBuffer, ByteBuffer>;

  Echo() {
    AddMethod(new grpc::internal::RpcServiceMethod(
        remote::kSessionMethod, grpc::internal::RpcMethod::BIDI_STREAMING,
        new grpc::internal::BidiStreamingHandler<Echo, ByteBuffer, ByteBuffer>(
            [](Echo*, grpc::ServerContext*, Stream* stream) { return Session(stream); }, this)));
  }

 private:
  static grpc::Status Session(Stream* stream) {
    std::vector<std::byte> place(kPieceBytes);
    for (ByteBuffer message; stream->Read(&message);) {
      remote::ClientFrame frame;
      if (!Parse(message, frame)) std::exit(1);
      remote::SliceReader payload(frame.payload);
      if (payload.left() == 0)
        stream->Write(Serialize(remote::ServerFrame()));
      else
        (void)payload.Read(std::span(place).first(payload.left()));
    }
    return grpc::Status::OK;
  }
};

// Runs in a process of its own. Returns its port.
int StartEcho() {
  int port_pipe[2];
  if (pipe(port_pipe) != 0) std::exit(1);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Echo echo;
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&echo);
    const auto server = builder.BuildAndStart();
    if (write(port_pipe[1], &port, sizeof(port)) != sizeof(port)) std::exit(1);
    server->Wait();
  }
  int port = 0;
  if (read(port_pipe[0], &port, sizeof(port)) != sizeof(port)) std::exit(1);
  return port;
}

// Connects to a process that receives kBytes into memory and answers with one byte.
UniqueFd StartPlain() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, raw, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, raw, &length) != 0)
    std::exit(1);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int connection = accept(listener, nullptr, nullptr);
    std::vector<std::byte> place(kBytes);
    while (true) {
      for (size_t at = 0; at < kBytes;) {
        const ssize_t got = recv(connection, place.data() + at, kBytes - at, 0);
        if (got <= 0) _exit(0);
        at += static_cast<size_t>(got);
      }
      if (send(connection, place.data(), 1, 0) != 1) _exit(1);
    }
  }
  UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(connection.get(), raw, length) != 0) std::exit(1);
  close(listener);
  return connection;
}

void CopyPlain(const UniqueFd& connection, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(connection.get(), bytes.data(), bytes.size(), 0);
    if (sent <= 0) std::exit(1);
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  char answer;
  if (recv(connection.get(), &answer, 1, 0) != 1) std::exit(1);
}

// The client of Echo.
class Bare {
 public:
  explicit Bare(int port)
      : channel_(
            grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials())),
        stream_(grpc::internal::ClientReaderWriterFactory<ByteBuffer, ByteBuffer>::Create(
            channel_.get(),
            grpc::internal::RpcMethod(remote::kSessionMethod, grpc::internal::RpcMethod::BIDI_STREAMING,
                                      channel_),
            &context_)) {}
  void Send(const remote::ClientFrame& frame) { stream_->Write(Serialize(frame)); }
  // Sends a frame without a payload and waits for its answer.
  void Trip() {
    ByteBuffer message;
    remote::ServerFrame answer;
    Send({});
    if (!stream_->Read(&message) || !Parse(message, answer)) std::exit(1);
  }

 private:
  grpc::ClientContext context_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<grpc::ClientReaderWriter<ByteBuffer, ByteBuffer>> stream_;
};

struct Samples {
  std::vector<int64_t> bare_trip, trip, plain_copy, bare_copy, copy, op, local_op, no_op, local_no_op;
};

// Returns the time per op of many ops, until all have ended.
int64_t OpNs(const Tensor& small) {
  const int ops = Smoke() ? 1000 : 100'000;
  const int64_t began = NowNs();
  for (int i = 0; i < ops; ++i) Need(Add(small, small).status());
  Need(small.queue().Synchronize());
  return (NowNs() - began) / ops;
}

// Returns the time per command of many no-ops, until all have ended.
int64_t NoOpNs(NopStream& stream) {
  const int commands = Smoke() ? 10'000 : 500'000;
  const int64_t began = NowNs();
  for (int i = 1; i < commands; ++i) stream.Publish();
  stream.RoundTrip();
  return (NowNs() - began) / commands;
}

void TakeSamples(const UniqueFd& plain, Bare& bare, const Tensor& small, const Tensor& local,
                 Samples& samples) {
  const Queue& queue = small.queue();
  const uint64_t one = 1;
  const Buffer word = *queue.Allocate(sizeof(one));
  const int trips = Smoke() ? 20 : 200;
  for (int i = 0; i < trips; ++i) {
    int64_t began = NowNs();
    bare.Trip();
    samples.bare_trip.push_back(NowNs() - began);
    began = NowNs();
    Need(queue.Upload(std::as_bytes(std::span(&one, 1)), word.handle(), 0));  // the smallest piece of work
    Need(queue.Synchronize());
    samples.trip.push_back(NowNs() - began);
  }
  static std::vector<std::byte>& bytes = *new std::vector<std::byte>(kBytes, std::byte{1});
  int64_t began = NowNs();
  CopyPlain(plain, bytes);
  samples.plain_copy.push_back(NowNs() - began);
  began = NowNs();
  for (size_t at = 0; at < kBytes; at += kPieceBytes) {
    remote::ClientFrame frame;
    frame.payload.emplace_back(bytes.data() + at, kPieceBytes, grpc::Slice::STATIC_SLICE);
    bare.Send(frame);
  }
  bare.Trip();
  samples.bare_copy.push_back(NowNs() - began);
  const auto buffer = queue.Allocate(kBytes);
  Need(buffer.status());
  began = NowNs();
  Need(queue.Upload(bytes, buffer->handle(), 0));
  Need(queue.Synchronize());
  samples.copy.push_back(NowNs() - began);
  samples.op.push_back(OpNs(small));
  samples.local_op.push_back(OpNs(local));
}

Tensor Small(const Session& session) {
  const std::vector<float> ones(8, 1);
  auto small = Tensor::FromHost(session.DefaultQueue(0), std::span<const float>(ones), {8});
  Need(small.status());
  return *std::move(small);
}

int Main(const char* daemon) {
  remote::KeepFreedMemory();
  const UniqueFd plain = StartPlain();
  const int port = StartEcho();  // forks, so it must run before threads exist
  ConnectOptions options;
  ConnectOptions local_options;
  local_options.address = daemon;
  const auto session = Session::Connect(options);
  const auto local_session = Session::Connect(local_options);
  Need(session.status());
  Need(local_session.status());
  const Tensor small = Small(**session), local = Small(**local_session);
  Bare bare(port);
  Samples samples;
  TakeSamples(plain, bare, small, local, samples);  // warm-up
  samples = {};
  for (int round = 0; round < (Smoke() ? 2 : 15); ++round) TakeSamples(plain, bare, small, local, samples);
  NopStream stream(options),
      local_stream(local_options);  // created late, because further sessions slow down round trips
  for (int round = 0; round < (Smoke() ? 2 : 9); ++round) {
    samples.no_op.push_back(NoOpNs(stream));
    samples.local_no_op.push_back(NoOpNs(local_stream));
  }
  const auto rate = [](std::vector<int64_t>& ns) { return static_cast<double>(kBytes) / Quantile(ns, 0.5); };
  const auto us = [](std::vector<int64_t>& ns) { return Quantile(ns, 0.5) / 1e3; };
  std::printf(
      "{\"bare_trip_us\": %.2f, \"trip_us\": %.2f, \"no_op_us\": %.3f, \"local_no_op_us\": %.3f, "
      "\"op_us\": %.3f, \"local_op_us\": %.3f, \"plain_gb_s\": %.3f, \"bare_gb_s\": %.3f, \"gb_s\": %.3f}\n",
      us(samples.bare_trip), us(samples.trip), us(samples.no_op), us(samples.local_no_op), us(samples.op),
      us(samples.local_op), rate(samples.plain_copy), rate(samples.bare_copy), rate(samples.copy));
  std::fflush(stdout);
  _exit(0);
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: remote_costs SOCKET\n");
    return 2;
  }
  return xpud::bench::Main(argv[1]);
}
