// Streams of tiny commands, written straight to a ring. Not thread-safe.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "proto/wire/encode.h"
#include "sdk/client/connect.h"
#include "tests/bench/rows.h"

namespace xpud::bench {

// A session on one device, reduced to its ring, with four buffers.
class CommandStream {
 public:
  static constexpr int64_t kRows = 16, kColumns = 16;
  static constexpr int64_t kBytes = kRows * kColumns * 4;
  static constexpr uint64_t kLooksPerSignOfLife = 1 << 20;

  explicit CommandStream(const std::string& address, uint32_t device = 0) {
    ConnectOptions options;
    options.address = address;
    options.client_name = "bench";
    auto connection = client::Connect(options);
    Need(connection.status());
    connection_ = *std::move(connection);
    auto transport = client::OpenDevice(connection_, device);
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

}  // namespace xpud::bench
