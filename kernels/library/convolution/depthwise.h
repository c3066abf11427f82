// Depthwise convolutions of contiguous images on the CPU: each plane of the result comes from one plane of
// the input, as it lies in memory. oneDNN would convert both to blocks of channels and back. f32, bf16 and
// f16, multiplied and added in f32. The gradient by the input is computed so too, if the stride is 1.
#pragma once

#include "kernels/api/kernel_store.h"
#include "kernels/api/launch.h"
#include "kernels/library/convolution/convolution_problem.h"

namespace xpud::kernels::convolution {

class Depthwise {
 public:
  // `sibling`: any kernel of the module.
  Depthwise(KernelStore& store, const Kernel& sibling);

  // Returns true and adds the launch if this serves the call: a convolution, or its gradient by the input.
  bool Plan(const ops::Convolution& c, ops::Family direction, int workers, LaunchList& launches) const;

 private:
  const Kernel* const kernel_;
};

// A call, by value. The gradient by the input is the convolution of the output's gradient.
struct DepthwiseProblem {
  ops::DType type = ops::DType::kFloat32;
  bool is_flipped = false;  // the kernel, in both dimensions
  const std::byte* input = nullptr;
  const std::byte* weight = nullptr;
  const std::byte* bias = nullptr;
  std::byte* output = nullptr;
  int64_t batch = 0, channels = 0, per_group = 1;  // channels of the output; for each of the input
  std::array<int64_t, 3> weight_strides{};         // of channels, rows and columns
  int64_t bias_stride = 0;
  std::array<int64_t, 2> in{}, out{}, kernel{}, stride{}, padding{}, dilation{};
  int64_t block_rows = 0;  // of the output, computed at once
};

// The entry in the module's table.
inline constexpr const char* kDepthwiseEntry = "convolution_depthwise";
void RunDepthwise(const void* const* args, const uint32_t group[3], void* scratch);
inline constexpr uint32_t kDepthwiseSizes[] = {sizeof(DepthwiseProblem), sizeof(uint32_t)};

}  // namespace xpud::kernels::convolution
