// A loop kernel of the program's (proto/loops), with which compiled code computes in one command. Defined on
// each device at its first call there, or before it by Prepare, and again after the daemon was replaced.
// REQUIRES: the interpreter lock, or another one; not for the destructor.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {

// Returns true if the daemon knows loop kernels.
bool KnowsLoopKernels();

class LoopKernel {
 public:
  // An operand of a call: a tensor, which the caller keeps, or a number.
  struct Argument {
    const at::Tensor* tensor = nullptr;
    ops::Number number = {};
  };

  // `bytes`: as proto/loops/codec.h writes it. `name`: for errors and profiles. `scalars`: the types of the
  // inputs that are numbers, in their order. Throws NotImplementedError for a type that the wire lacks.
  LoopKernel(std::string bytes, std::string name, std::span<const at::ScalarType> scalars);

  const std::string& name() const { return name_; }
  // Returns the type of the input that is number `i`. Throws ValueError if there are not so many.
  ops::DType ScalarType(size_t i) const;

  // Has the daemon compile the kernel for its first call on the device, whose sizes and elements are those of
  // Queue::PrepareKernel. Does nothing if this process does not use that device. Throws what Call throws.
  void Prepare(int device, std::span<const int64_t> sizes, std::span<const int64_t> elements);
  // Sends the call to the current stream of the tensors' device. A tensor stands for all memory from its
  // first to its last element. Throws what operators throw; what the daemon finds comes at the next
  // synchronisation.
  void Call(std::span<const Argument> outputs, std::span<const Argument> inputs,
            std::span<const int64_t> sizes);

 private:
  // Returns the kernel on the device, where it is defined if need be.
  const xpud::LoopKernel& On(Runtime& runtime, int device);

  struct Defined {
    uint32_t runtime = 0;  // Runtime::number; 0: nowhere yet
    xpud::LoopKernel kernel;
  };
  const std::string bytes_, name_;
  std::vector<ops::DType> scalars_;
  std::array<Defined, kMaxDevices> defined_;
};

}  // namespace xpud::shim
