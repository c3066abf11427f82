#include "tests/conformance/isolation/op_calls.h"

#include "proto/loops/codec.h"
#include "proto/loops/testing/builder.h"
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
    View number = Immediate(tensor.number.AsReal());
    if (ops::DescriptorOf(row).runs_kernel) number.dtype = tensor.dtype;  // the kernel's
    views.push_back(tensor.immediate ? number
                                     : TensorView({++buffers, 1}, {tensor.sizes.begin(), tensor.sizes.end()},
                                                  tensor.dtype));
  };
  for (const ops::Sample::Tensor& tensor : sample.outputs) add(tensor, call.outputs);
  for (const ops::Sample::Tensor& tensor : sample.inputs) add(tensor, call.inputs);
  return call;
}

// out = in * scalar, for each of size 0 elements.
std::string SampleKernel() {
  loops::testing::BodyBuilder b;
  const uint32_t i = b.Dimension(b.Size(0));
  const uint32_t scalar = b.Make({.kind = loops::StatementKind::kScalar, .operand = 1});
  b.Store(2, i, b.Call(loops::Function::mul, DType::kFloat32, b.Load(0, i), scalar));
  return loops::Encode({.operands = {{DType::kFloat32, loops::Role::kRead},
                                     {DType::kFloat32, loops::Role::kScalar},
                                     {DType::kFloat32, loops::Role::kWritten}},
                        .sizes = 1,
                        .bodies = {b.body}});
}

void PutOperands(HostileSession& session) {
  const std::vector<std::byte> zeros(wire::kMaxInlineUploadBytes);
  session.Put(DefineKernel(1, SampleKernel()));
  for (uint32_t id = 1; id <= kBuffers; ++id) {
    session.Put(Allocate({id, 1}, kOperandBytes));
    for (uint64_t at = 0; at < kOperandBytes; at += zeros.size())
      session.Put(UploadInline({id, 1}, at, zeros));
  }
}

}  // namespace xpud::isolation
