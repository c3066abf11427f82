#include "tests/conformance/isolation/op_calls.h"

#include "proto/ops/family.h"

namespace xpud::isolation {
namespace {

using ops::DType;

constexpr int kBuffers = ops::kMaxOutputs + ops::kMaxInputs;

DType TypeOf(const ops::Row& row) {
  for (const DType type : {DType::kFloat32, DType::kInt64}) {
    if (ops::Contains(row.dtypes, type)) return type;
  }
  return DType::kInt32;
}

}  // namespace

std::vector<View*> Call::operands() {
  std::vector<View*> all;
  for (auto* views : {&outputs, &inputs}) {
    for (View& view : *views) all.push_back(&view);
  }
  return all;
}

Call RightCall(const ops::Row& row) { return RightCall(row, TypeOf(row)); }

Call RightCall(const ops::Row& row, DType type) {
  const ops::Sample sample = ops::DescriptorOf(row).sample(row, type);
  Call call = {&row, type, {}, {}, sample.attributes, sample.lists};
  uint32_t buffers = 0;
  const auto add = [&](const ops::Sample::Tensor& tensor, std::vector<View>& views) {
    views.push_back(tensor.immediate ? Immediate(tensor.number.AsReal())
                                     : TensorView({++buffers, 1}, {tensor.sizes.begin(), tensor.sizes.end()},
                                                  tensor.dtype));
  };
  for (const ops::Sample::Tensor& tensor : sample.outputs) add(tensor, call.outputs);
  for (const ops::Sample::Tensor& tensor : sample.inputs) add(tensor, call.inputs);
  return call;
}

void PutOperands(HostileSession& session) {
  const std::vector<std::byte> zeros(wire::kMaxInlineUploadBytes);
  for (uint32_t id = 1; id <= kBuffers; ++id) {
    session.Put(Allocate({id, 1}, kOperandBytes));
    for (uint64_t at = 0; at < kOperandBytes; at += zeros.size())
      session.Put(UploadInline({id, 1}, at, zeros));
  }
}

}  // namespace xpud::isolation
