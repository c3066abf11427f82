// The cost of a command in long streams of tiny commands, compared between daemons:
//
// clang-format off
//   command_costs ADDRESS...   runs streams in turns against each daemon; prints a line of JSON for each stream
// clang-format on
//
// About a hundred commands are published at once, while the daemon is awake. The time until they are done is
// measured; the client only waits.
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/wire/encode.h"
#include "sdk/client/connect.h"
#include "tests/bench/rows.h"

namespace xpud::bench {
namespace {

// A session reduced to its ring, with four buffers.
class Stream {
 public:
  static constexpr int64_t kRows = 16, kColumns = 16;
  static constexpr int64_t kBytes = kRows * kColumns * 4;
  static constexpr uint64_t kLooksPerSignOfLife = 1 << 20;

  explicit Stream(const std::string& address) {
    ConnectOptions options;
    options.address = address;
    options.client_name = "command_costs";
    auto connection = client::Connect(options);
    Need(connection.status());
    connection_ = *std::move(connection);
    auto transport = client::OpenDevice(connection_, 0);
    Need(transport.status());
    transport_ = *std::move(transport);
    for (uint32_t id = 1; id <= 4; ++id) {
      Allocate({id, 1});
      Clear({id, 1});
    }
    Finish();
  }

  void Nop() { Put(wire::NopCommand{wire::Header(wire::CommandKind::kNop, 0, sizeof(wire::NopCommand))}); }

  // Buffer 3 = buffer 1 + buffer 2, 16 x 16.
  void Add() { AddInto({3, 1}); }

  // Like an eager program: allocates the result, runs the op, frees the result. Three commands.
  void AddAnew() {
    const BufferHandle result = {5, ++generation_};
    Allocate(result);
    AddInto(result);
    const wire::FreeCommand free = {wire::Header(wire::CommandKind::kFree, 0, sizeof(wire::FreeCommand)),
                                    wire::ToWire(result)};
    Put(free);
  }

  // Copies row 0 of buffer 1 into row 0 of buffer 3, by the index in buffer 4.
  void Embed() {
    const TensorRef out = Tensor({3, 1}, one_row_), weight = Tensor({1, 1}, all_);
    TensorRef index = Tensor({4, 1}, one_);
    index.dtype = ops::DType::kInt64, index.rank = 1;
    const TensorRef inputs[] = {weight, index};
    Execute({&ops::RowOf("embedding"), ops::DType::kFloat32, {&out, 1}, inputs, {}});
  }

  // Waits for all commands without sleeping, because waking up would distort the result. REQUIRES: no command
  // has failed.
  void Finish() {
    transport().Publish();
    for (uint64_t looks = 1; transport().Completed(0) < sequence_; ++looks) {
      __builtin_ia32_pause();
      if (looks % kLooksPerSignOfLife == 0) Need(transport().status());
    }
    if (transport().Errors(0) != 0) Need(transport().LastError(0));
  }

 private:
  transport::ClientTransport& transport() { return *transport_; }

  std::byte* Reserve(size_t bytes) {
    std::byte* space;
    while ((space = transport().Reserve(bytes)) == nullptr) Need(transport().status());
    return space;
  }
  void Commit(size_t bytes) {
    transport().Commit(bytes);
    ++sequence_;
  }
  template <typename Command>
  void Put(const Command& command) {
    std::memcpy(Reserve(sizeof(command)), &command, sizeof(command));
    Commit(sizeof(command));
  }
  void Execute(const OpCall& call) {
    const size_t bytes = *wire::ExecuteBytes(call);
    wire::EncodeExecute(call, 0, Reserve(bytes));
    Commit(bytes);
  }

  void Allocate(BufferHandle buffer) {
    const wire::AllocateCommand command = {
        wire::Header(wire::CommandKind::kAllocate, 0, sizeof(wire::AllocateCommand)), wire::ToWire(buffer),
        kBytes};
    Put(command);
  }
  void Clear(BufferHandle buffer) {
    struct {
      wire::UploadInlineCommand command;
      std::byte zeros[kBytes];
    } upload = {};
    upload.command = {wire::Header(wire::CommandKind::kUploadInline, 0, sizeof(upload)), wire::ToWire(buffer),
                      0, kBytes, 0};
    Put(upload);
  }
  void AddInto(BufferHandle result) {
    const TensorRef out = Tensor(result, all_);
    const TensorRef inputs[] = {Tensor({1, 1}, all_), Tensor({2, 1}, all_), TensorRef::Immediate(1.0)};
    Execute({&ops::RowOf("add.Tensor"), ops::DType::kFloat32, {&out, 1}, inputs, {}});
  }
  static TensorRef Tensor(BufferHandle buffer, const int64_t (&sizes)[2]) {
    TensorRef tensor;
    tensor.kind = TensorRef::Kind::kTensor;
    tensor.rank = 2;
    tensor.buffer = buffer;
    tensor.sizes = sizes;
    return tensor;
  }

  static constexpr int64_t all_[] = {kRows, kColumns}, one_row_[] = {1, kColumns}, one_[] = {1, 1};
  client::Connection connection_;
  std::unique_ptr<transport::ClientTransport> transport_;
  uint64_t sequence_ = 0;
  uint32_t generation_ = 0;
};

struct Kind {
  const char* name;
  int commands;  // per step
  int steps;     // published at once; 16 KiB at most
  void (Stream::*step)();
};

constexpr Kind kKinds[] = {{"no-op", 1, 2000, &Stream::Nop},
                           {"add 16x16", 1, 100, &Stream::Add},
                           {"allocate, add 16x16, free", 3, 80, &Stream::AddAnew},
                           {"embedding, one row of 16", 1, 100, &Stream::Embed}};

// Appends the times of some rounds.
void Measure(Stream& stream, const Kind& kind, std::vector<int64_t>& times) {
  constexpr int kRounds = 20;
  stream.Nop();
  stream.Finish();  // wakes the daemon and flushes earlier work from its caches
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kind.steps; ++i) (stream.*kind.step)();
    const int64_t began = NowNs();
    stream.Finish();
    if (round != 0) times.push_back(NowNs() - began);
  }
}

// Returns the median nanoseconds per command of each daemon.
std::vector<double> Measure(const std::vector<std::unique_ptr<Stream>>& streams, const Kind& kind) {
  std::vector<std::vector<int64_t>> times(streams.size());
  const int turns = Smoke() ? 2 : 1000;
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < streams.size(); ++i) {
      const size_t which = (static_cast<size_t>(turn) + i) % streams.size();
      Measure(*streams[which], kind, times[which]);
    }
  }
  std::vector<double> each;
  for (std::vector<int64_t>& of_one : times)
    each.push_back(Quantile(of_one, 0.5) / kind.steps / kind.commands);
  return each;
}

int Main(int count, char** addresses) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < count; ++i) streams.push_back(std::make_unique<Stream>(addresses[i]));
  for (const Kind& kind : kKinds) {
    std::printf("{\"stream\":\"%s\",\"ns\":[%s]}\n", kind.name,
                absl::StrJoin(Measure(streams, kind), ",").c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace xpud::bench

int main(int argc, char** argv) { return xpud::bench::Main(argc - 1, argv + 1); }
