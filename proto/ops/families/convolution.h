// Convolutions and their gradients over 1 to 3 spatial dimensions:
// convolution: out[N,Co,S'] <- input[N,Ci,S], weight[Co,Ci/groups,K], bias?[Co].
// Its gradient by the input: out[N,Ci,S] <- gradient[N,Co,S'], weight, bias?[Ci]. This is the transposed
// convolution, too, which may have a bias. Its gradient by the weight: out[Co,Ci/groups,K] <-
// gradient[N,Co,S'], input[N,Ci,S]. Along each spatial dimension S' = (S + 2 padding - dilation (K - 1) - 1)
// / stride + 1.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/ops/families/windows.h"
#include "proto/ops/named_call.h"

namespace xpud::ops {

struct ConvolutionAttributes {
  Integers stride{}, padding{}, dilation{};
  int64_t groups = 0;
  bool allow_tf32 = false, deterministic = false;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Attribute(named.stride, "stride");
    visitor.Attribute(named.padding, "padding");
    visitor.Attribute(named.dilation, "dilation");
    visitor.Attribute(named.groups, "groups");
    visitor.Attribute(named.allow_tf32, "allow_tf32");
    visitor.Attribute(named.deterministic, "deterministic");
  }
};

template <typename T>
struct ConvolutionCall {
  T out{}, input{}, weight{}, bias{};
  ConvolutionAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.input, "input");
    visitor.Input(named.weight, "weight");
    visitor.Input(named.bias, "bias", kOptional);
    ConvolutionAttributes::Visit(named.attributes, visitor);
  }
};

template <typename T>
struct ConvolutionInputCall {
  T out{}, gradient{}, weight{}, bias{};
  ConvolutionAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.gradient, "gradient");
    visitor.Input(named.weight, "weight");
    visitor.Input(named.bias, "bias", kOptional);
    ConvolutionAttributes::Visit(named.attributes, visitor);
  }
};

template <typename T>
struct ConvolutionWeightCall {
  T out{}, gradient{}, input{};
  ConvolutionAttributes attributes{};

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out");
    visitor.Input(named.gradient, "gradient");
    visitor.Input(named.input, "input");
    ConvolutionAttributes::Visit(named.attributes, visitor);
  }
};

// A convolution, with the names of its forward direction: output[N,Co,S'] = input[N,Ci,S] *
// weight[Co,Ci/groups,K]. One of the three is the call's output, depending on the family. S, S' and K have 1
// to 3 dimensions.
struct Convolution {
  const Operand* output = nullptr;
  const Operand* input = nullptr;
  const Operand* weight = nullptr;
  const Operand* result = nullptr;  // the one of the three that the call computes
  const Operand* bias = nullptr;    // of the result, [its channels]; null if absent
  int spatial = 0;
  std::array<int64_t, kMaxSpatial> stride{}, padding{}, dilation{};
  int64_t groups = 1;
  bool allow_tf32 = false;     // f32 may be multiplied in TF32 where the device has it
  bool deterministic = false;  // results must not differ from run to run

  int64_t batch() const { return output->sizes[0]; }
  int64_t input_channels() const { return input->sizes[1]; }
  int64_t output_channels() const { return output->sizes[1]; }
};

// Reads the operands and attributes of a call of kConvolution, kConvolutionInput or kConvolutionWeight, and
// checks them. Returns InvalidArgument with what was found and what is needed.
absl::StatusOr<Convolution> ReadConvolution(const Call& call);

}  // namespace xpud::ops
