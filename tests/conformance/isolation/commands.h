// Builds commands as bytes, with values that no client library would send.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "proto/wire/commands.h"
#include "proto/wire/encode.h"

namespace xpud::isolation {

template <typename Command>
wire::CommandHeader HeaderOf(wire::CommandKind kind, uint32_t queue = 0) {
  return wire::Header(kind, queue, sizeof(Command));
}
inline wire::NopCommand Nop(uint32_t queue = 0) {
  return {HeaderOf<wire::NopCommand>(wire::CommandKind::kNop, queue)};
}
inline wire::AllocateCommand Allocate(wire::Handle buffer, uint64_t bytes, uint32_t queue = 0) {
  return {HeaderOf<wire::AllocateCommand>(wire::CommandKind::kAllocate, queue), buffer, bytes};
}
inline wire::FreeCommand Free(wire::Handle buffer) {
  return {HeaderOf<wire::FreeCommand>(wire::CommandKind::kFree), buffer};
}
inline wire::UploadCommand Upload(wire::Handle buffer, uint64_t offset, wire::HostPlace from,
                                  uint64_t bytes) {
  return {HeaderOf<wire::UploadCommand>(wire::CommandKind::kUpload), buffer, offset, from, bytes};
}
inline wire::DownloadCommand Download(wire::Handle buffer, uint64_t offset, wire::HostPlace to,
                                      uint64_t bytes) {
  return {HeaderOf<wire::DownloadCommand>(wire::CommandKind::kDownload), buffer, offset, to, bytes};
}
inline wire::CopyCommand Copy(wire::Handle source, uint64_t source_offset, wire::Handle target,
                              uint64_t target_offset, uint64_t bytes) {
  return {HeaderOf<wire::CopyCommand>(wire::CommandKind::kCopy),
          source,
          target,
          source_offset,
          target_offset,
          bytes};
}
inline wire::CreateQueueCommand CreateQueue(uint32_t queue, int32_t priority = 0) {
  return {HeaderOf<wire::CreateQueueCommand>(wire::CommandKind::kCreateQueue, queue), priority, 0};
}
inline wire::DestroyQueueCommand DestroyQueue(uint32_t queue) {
  return {HeaderOf<wire::DestroyQueueCommand>(wire::CommandKind::kDestroyQueue, queue)};
}
inline wire::TimestampCommand Timestamp(uint32_t slot) {
  return {HeaderOf<wire::TimestampCommand>(wire::CommandKind::kTimestamp), slot, 0};
}
inline wire::WaitCommand Wait(uint32_t other, uint64_t sequence, uint32_t queue = 0, uint32_t device = 0) {
  return {HeaderOf<wire::WaitCommand>(wire::CommandKind::kWait, queue), device, other, sequence};
}
inline wire::ClearErrorCommand ClearError(uint32_t errors) {
  return {HeaderOf<wire::ClearErrorCommand>(wire::CommandKind::kClearError), errors, 0};
}
inline wire::ReleaseMemoryCommand ReleaseMemory(uint32_t memory) {
  return {HeaderOf<wire::ReleaseMemoryCommand>(wire::CommandKind::kReleaseMemory), memory, 0};
}
inline wire::ReserveCommand Reserve(uint64_t bytes) {
  return {HeaderOf<wire::ReserveCommand>(wire::CommandKind::kReserve), bytes};
}
inline wire::ForgetKernelCommand ForgetKernel(uint32_t kernel) {
  return {HeaderOf<wire::ForgetKernelCommand>(wire::CommandKind::kForgetKernel), kernel, 0};
}
// A definition of a loop kernel, and a call of it that will follow.
std::vector<std::byte> DefineKernel(uint32_t kernel, std::string_view bytes);
std::vector<std::byte> PrepareKernel(uint32_t kernel, const std::vector<int64_t>& sizes,
                                     const std::vector<int64_t>& elements);
std::vector<std::byte> UploadInline(wire::Handle buffer, uint64_t offset, std::span<const std::byte> bytes);

// An operand of an op, as on the wire.
struct View {
  wire::OperandKind kind = wire::OperandKind::kAbsent;
  ops::DType dtype = ops::DType::kFloat32;
  wire::Handle buffer{};
  uint64_t offset = 0;  // elements
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> strides;  // empty: row-major
  ops::Number number;
};
inline View TensorView(wire::Handle buffer, std::vector<uint64_t> sizes,
                       ops::DType dtype = ops::DType::kFloat32, uint64_t offset = 0,
                       std::vector<uint64_t> strides = {}) {
  return {wire::OperandKind::kTensor, dtype, buffer, offset, std::move(sizes), std::move(strides), {}};
}
inline View Immediate(double value) {
  return {wire::OperandKind::kReal, ops::DType::kFloat64, {}, 0, {}, {}, ops::Number::Real(value)};
}

// Encodes an op, valid or not. Missing attributes have their defaults.
std::vector<std::byte> Execute(const ops::Row& row, ops::DType compute, std::span<const View> outputs,
                               std::span<const View> inputs, std::span<const ops::Number> attributes = {},
                               std::span<const uint16_t> lists = {});

}  // namespace xpud::isolation
