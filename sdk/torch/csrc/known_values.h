// What the host knows of device memory: small integers and booleans that it uploaded, and what copies, maps
// and reductions made of these alone. Models ask for such values in the middle of a forward (is anything
// padded? how long is the longest text?); where the host knows the answer, nobody waits for the device. The
// device computes it, too, as whatever goes on there needs it.
//
// The values of a storage are known as a whole, from an upload or an operator that wrote all of it until the
// next command that may write it; they are computed on the host when somebody asks. Any thread may call; who
// writes a tensor from two threads at once must order them himself, as ever.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "sdk/torch/csrc/operand.h"

namespace xpud::shim {

// The elements of a tensor of ours as a tensor of the CPU, only to be read; undefined where the host does not
// know them.
at::Tensor KnownValues(const at::Tensor& tensor);

// `target` was just uploaded from `source`, which has its type, sizes and strides, and its final values.
void NoteUpload(const at::Tensor& source, const at::Tensor& target);

// `result`, all of its memory, was just computed from `inputs` as `compute` does for tensors of the CPU.
// `compute` may be called later, on any thread, and throw what PyTorch throws: the result is then not known.
using HostCompute = std::function<at::Tensor(std::vector<at::Tensor> inputs)>;
void NoteResult(const at::Tensor& result, const std::vector<at::Tensor>& inputs, HostCompute compute);
// The same for a functional operator and its arguments.
void NoteResult(const at::Tensor& result, const c10::OperatorHandle& op, torch::jit::Stack arguments);

namespace known {

inline constexpr int64_t kMostElements = 32768;  // of a storage; ATen computes so many on one thread

// How many known buffers have ids of this remainder: most commands need no lock to see that they change none.
inline constexpr size_t kRemainders = 8192;
extern std::array<std::atomic<uint16_t>, kRemainders> buffers_of_remainder;

inline bool MayKnow(BufferHandle buffer) {
  return buffers_of_remainder[buffer.id % kRemainders].load(std::memory_order_relaxed) != 0;
}
void Erase(BufferHandle buffer);

}  // namespace known

// Whether tensors like this one can be known at all.
inline bool IsKnowable(const at::TensorBase& tensor) {
  return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) && tensor.numel() > 0 &&
         tensor.numel() <= known::kMostElements;
}
inline bool MayBeKnown(const at::TensorBase& tensor) {
  return tensor.device().type() == kDeviceType && known::MayKnow(PlaceOf(tensor).buffer);
}

// A command is sent that may write `buffer`, or it is freed.
inline void ForgetValues(BufferHandle buffer) {
  if (known::MayKnow(buffer)) [[unlikely]]
    known::Erase(buffer);
}

}  // namespace xpud::shim
