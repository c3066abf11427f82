// What the calls of the three convolution families have in common. Plain values; thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/ops/operand.h"
#include "proto/ops/windows.h"

namespace xpud::ops {

// A convolution, with the names of its forward direction: output[N,Co,S'] = input[N,Ci,S] *
// weight[Co,Ci/groups,K]. One of the three is the call's output, depending on the family. S, S' and K have 1
// to 3 dimensions.
struct Convolution {
  const Operand* output = nullptr;
  const Operand* input = nullptr;
  const Operand* weight = nullptr;
  const Operand* bias = nullptr;  // of the call's output, [its channels]; null if absent
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
// checks them, all but the type of the call's output. Returns InvalidArgument with what was found and what is
// needed.
absl::StatusOr<Convolution> ReadConvolution(const Call& call);

}  // namespace xpud::ops
