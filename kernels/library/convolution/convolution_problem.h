// The three families of convolutions in canonical form, for every library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/api/op_call.h"
#include "proto/ops/families/convolution.h"

namespace xpud::kernels::convolution {

// A plain value, used in the key of a plan: its padding is zeroed, and it is compared by bytes.
struct ConvolutionProblem {
  using List = std::array<int64_t, ops::kMaxSpatial>;

  int64_t batch = 0, groups = 1, input_channels = 0, output_channels = 0;
  List input{}, output{}, kernel{}, stride{}, padding{}, dilation{};  // the first `spatial`
  int64_t spatial = 2;  // 2 or 3; one dimension is the second of 2
  ops::Family direction = ops::Family::kConvolution;
  ops::DType type = ops::DType::kFloat32;  // in the multiplication
  bool bias = false;                       // of the convolution only
  uint8_t unused[5] = {};

  bool operator==(const ConvolutionProblem& other) const {
    return std::memcmp(this, &other, sizeof(*this)) == 0;
  }
  template <typename H>
  friend H AbslHashValue(H state, const ConvolutionProblem& p) {
    return H::combine_contiguous(std::move(state), reinterpret_cast<const unsigned char*>(&p), sizeof(p));
  }
};
static_assert(std::has_unique_object_representations_v<ConvolutionProblem>);

// The tensors of a problem by their role in the convolution: the gradient by the input writes `input`.
struct ConvolutionOperands {
  std::byte* input = nullptr;
  std::byte* weight = nullptr;
  std::byte* bias = nullptr;
  std::byte* output = nullptr;
};

// Returns the problem of a convolution or a gradient, without bias, for a multiplication in `type`.
ConvolutionProblem ReadProblem(const ops::Convolution& c, ops::Family direction, ops::DType type);

// The order of a tensor's dimensions in memory.
enum class Layout : uint8_t { kContiguous, kChannelsLast };

// Returns a tensor like `like` at `data`, without gaps.
Operand Dense(const Operand& like, ops::DType type, Layout layout, void* data);
// Returns true if the operand is a tensor of this type and layout, without gaps.
bool IsDense(const Operand& operand, ops::DType type, Layout layout);

}  // namespace xpud::kernels::convolution
