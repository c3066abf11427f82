// What a session over a gateway costs beside a bare gRPC stream of the same frames on loopback, in turns.
// Against the gateway of $XPUD_ADDRESS; a line of JSON.
#include <grpcpp/grpcpp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sdk/remote/frame.h"
#include "tests/bench/rows.h"
#include "xpud/tensor.h"

namespace xpud::bench {
namespace {

constexpr size_t kBytes = 64 << 20, kPieceBytes = 512 << 10;  // as the client library cuts uploads

void Need(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "remote_costs: %s\n", status.ToString().c_str());
  std::exit(1);
}

// Takes payloads to a place of their size, and answers frames that have none.
class Echo final : public remote::FrameService {
 public:
  grpc::Status Session(grpc::ServerContext*, remote::ServerStream* stream) override {
    std::vector<std::byte> place(kPieceBytes);
    remote::ClientFrame frame;
    while (stream->Read(&frame)) {
      remote::SliceReader payload(frame.payload);
      if (payload.left() == 0)
        stream->Write({});
      else
        (void)payload.Read(std::span(place).first(payload.left()));
    }
    return grpc::Status::OK;
  }
};

// In a process of its own; gives its port.
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

struct Samples {
  std::vector<int64_t> bare_trip, trip, bare_copy, copy, command;
};

void TakeSamples(remote::ClientStream& bare, const Queue& queue, const Tensor& small, Samples& samples) {
  const uint64_t one = 1;
  const Buffer word = *queue.Allocate(sizeof(one));
  const int trips = Smoke() ? 20 : 200, commands = Smoke() ? 1000 : 100'000;
  remote::ServerFrame answer;
  for (int i = 0; i < trips; ++i) {
    int64_t began = NowNs();
    bare.Write({});
    if (!bare.Read(&answer)) std::exit(1);
    samples.bare_trip.push_back(NowNs() - began);
    began = NowNs();
    Need(queue.Upload(std::as_bytes(std::span(&one, 1)), word.handle(), 0));  // the least that there is to do
    Need(queue.Synchronize());
    samples.trip.push_back(NowNs() - began);
  }
  static std::vector<std::byte>& bytes = *new std::vector<std::byte>(kBytes);
  int64_t began = NowNs();
  for (size_t at = 0; at < kBytes; at += kPieceBytes) {
    remote::ClientFrame frame;
    frame.payload.emplace_back(bytes.data() + at, kPieceBytes, grpc::Slice::STATIC_SLICE);
    bare.Write(frame);
  }
  bare.Write({});
  if (!bare.Read(&answer)) std::exit(1);
  samples.bare_copy.push_back(NowNs() - began);
  const auto buffer = queue.Allocate(kBytes);
  Need(buffer.status());
  began = NowNs();
  Need(queue.Upload(bytes, buffer->handle(), 0));
  Need(queue.Synchronize());
  samples.copy.push_back(NowNs() - began);
  began = NowNs();
  for (int i = 0; i < commands; ++i) Need(Add(small, small).status());
  Need(queue.Synchronize());
  samples.command.push_back((NowNs() - began) / commands);
}

int Main() {
  const int port = StartEcho();  // before there are threads
  auto session = Session::Connect({});
  Need(session.status());
  const Queue queue = (*session)->DefaultQueue(0);
  grpc::ClientContext context;
  const auto channel =
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials());
  const auto bare = remote::OpenStream(channel, context);
  const std::vector<float> ones(8, 1);
  const auto small = Tensor::FromHost(queue, std::span<const float>(ones), {8});
  Need(small.status());
  Samples samples;
  TakeSamples(*bare, queue, *small, samples);  // for the first time
  samples = {};
  for (int round = 0; round < (Smoke() ? 2 : 15); ++round) TakeSamples(*bare, queue, *small, samples);
  const auto rate = [](std::vector<int64_t>& ns) { return static_cast<double>(kBytes) / Quantile(ns, 0.5); };
  std::printf(
      "{\"bare_trip_us\": %.2f, \"trip_us\": %.2f, \"command_us\": %.3f, \"bare_gb_s\": %.3f, \"gb_s\": "
      "%.3f}\n",
      Quantile(samples.bare_trip, 0.5) / 1e3, Quantile(samples.trip, 0.5) / 1e3,
      Quantile(samples.command, 0.5) / 1e3, rate(samples.bare_copy), rate(samples.copy));
  std::fflush(stdout);
  _exit(0);
}

}  // namespace
}  // namespace xpud::bench

int main() { return xpud::bench::Main(); }
