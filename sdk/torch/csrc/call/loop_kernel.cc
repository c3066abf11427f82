#include "sdk/torch/csrc/call/loop_kernel.h"

#include <ATen/ops/zeros.h>
#include <c10/util/SmallVector.h>

#include <utility>

#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/runtime/errors.h"

namespace xpud::shim {
namespace {

constexpr size_t kUsualOperands = 16;

const ops::Row& LoopRow() {
  static const ops::Row& row = ops::RowOf("xpud::loop");
  return row;
}

// Returns the number of elements from the tensor's first one to its last one.
int64_t ExtentOf(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor.numel();
  if (tensor.numel() == 0) return 0;
  int64_t extent = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) extent += (tensor.size(d) - 1) * tensor.stride(d);
  return extent;
}

// Throws ValueError if there is no tensor.
c10::Device DeviceOf(const std::string& name, std::span<const LoopKernel::Argument> outputs,
                     std::span<const LoopKernel::Argument> inputs) {
  for (const auto arguments : {outputs, inputs})
    for (const LoopKernel::Argument& argument : arguments)
      if (argument.tensor != nullptr) return argument.tensor->device();
  TORCH_CHECK_VALUE(false, "loop kernel ", name, " is called without a tensor");
}

void CheckTensor(const at::Tensor& tensor, c10::Device device) {
  CheckSameDevice(device, tensor.device());
  TORCH_CHECK(tensor.layout() == at::kStrided, "XPUD: a loop kernel takes strided tensors, not ",
              tensor.layout());
  TORCH_CHECK(!tensor.is_neg(), "XPUD: a loop kernel takes no tensor whose negation is pending");
}

// Returns a tensor whose memory stands for that of empty tensors, which have none.
at::Tensor StandIn(c10::Device device) {
  return at::zeros({1}, at::TensorOptions(at::kDouble).device(device));
}

ops::DType TypeOf(at::ScalarType type) {
  const auto dtype = ToDType(type);
  TORCH_CHECK_NOT_IMPLEMENTED(dtype.has_value(), "XPUD has no kernels for ", type);
  return *dtype;
}

}  // namespace

bool KnowsLoopKernels() {
  const Session* const session = Runtime::Get().session();
  return session == nullptr || session->KnowsLoopKernels();
}

LoopKernel::LoopKernel(std::string bytes, std::string name, std::span<const at::ScalarType> scalars)
    : bytes_(std::move(bytes)), name_(std::move(name)) {
  for (const at::ScalarType type : scalars) scalars_.push_back(TypeOf(type));
}

ops::DType LoopKernel::ScalarType(size_t i) const {
  TORCH_CHECK_VALUE(i < scalars_.size(), "loop kernel ", name_, " takes ", scalars_.size(),
                    " numbers, not more");
  return scalars_[i];
}

const xpud::LoopKernel& LoopKernel::On(Runtime& runtime, int device) {
  Defined& defined = defined_[static_cast<size_t>(device)];
  if (defined.runtime == runtime.number()) [[likely]]
    return defined.kernel;
  TORCH_CHECK_NOT_IMPLEMENTED(KnowsLoopKernels(), "the daemon at ", runtime.session()->address(),
                              " does not know xpud::loop, which compiled functions call: update it, or call "
                              "torch._dynamo.reset(), so that they are compiled without");
  auto made = runtime.current_queue(device).DefineKernel(std::as_bytes(std::span(bytes_)), name_);
  ThrowIfError(made.status());
  defined = {runtime.number(), *std::move(made)};
  return defined.kernel;
}

void LoopKernel::Prepare(int device, std::span<const int64_t> sizes, std::span<const int64_t> elements) {
  if (!Runtime::IsConnected() || Runtime::IsInBadFork()) return;
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null() || device < 0 || device >= runtime.device_count()) return;
  const xpud::LoopKernel& kernel = On(runtime, device);
  ThrowIfError(runtime.current_queue(device).PrepareKernel(kernel, sizes, elements));
}

void LoopKernel::Call(std::span<const Argument> outputs, std::span<const Argument> inputs,
                      std::span<const int64_t> sizes) {
  const c10::Device device = DeviceOf(name_, outputs, inputs);
  const size_t count = outputs.size() + inputs.size();
  c10::SmallVector<TensorRef, kUsualOperands> refs(count);
  c10::SmallVector<int64_t, kUsualOperands> extents(count);
  size_t at = 0, scalar = 0;
  at::Tensor stand_in;
  for (const auto arguments : {outputs, inputs}) {
    for (const Argument& argument : arguments) {
      if (argument.tensor == nullptr) {
        refs[at++] = TensorRef::FromNumber(argument.number, ScalarType(scalar++));
        continue;
      }
      const at::Tensor& tensor = *argument.tensor;
      CheckTensor(tensor, device);
      extents[at] = ExtentOf(tensor);
      refs[at] = Bare(tensor, TypeOf(tensor.scalar_type()));
      if (refs[at].buffer.generation == 0) [[unlikely]] {
        if (!stand_in.defined()) stand_in = StandIn(device);
        refs[at].buffer = PlaceOf(stand_in).buffer;
        refs[at].offset = 0;
      }
      refs[at].rank = 1;
      refs[at].sizes = &extents[at];
      ++at;
    }
  }
  TORCH_CHECK_VALUE(scalar == scalars_.size(), "loop kernel ", name_, " takes ", scalars_.size(),
                    " numbers, not ", scalar);
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) [[unlikely]]
    return;
  c10::SmallVector<ops::Number, kUsualOperands> attributes = {
      ops::Number::Integer(On(runtime, device.index()).id()),
      ops::Number::Integer(static_cast<int64_t>(sizes.size()))};
  for (const int64_t size : sizes) attributes.push_back(ops::Number::Integer(size));
  const std::array lengths = {static_cast<uint16_t>(outputs.size()), static_cast<uint16_t>(inputs.size())};
  const std::span<const TensorRef> all(refs.data(), refs.size());
  Execute({.row = &LoopRow(),
           .compute = all[0].dtype,
           .outputs = all.first(outputs.size()),
           .inputs = all.subspan(outputs.size()),
           .attributes = {attributes.data(), attributes.size()},
           .lists = lengths},
          device.index());
}

}  // namespace xpud::shim
