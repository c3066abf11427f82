#include "kernels/library/convolution/depthwise.h"

#include <algorithm>

#include "kernels/library/simd/simd.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::convolution {
namespace {

constexpr int64_t kMaxTaps = 512;                      // whose products are added one after the other
constexpr int64_t kBlockFloats = 64 << 10;             // of the input, widened: they stay in a core's cache
constexpr double kOperationRate = 10, kByteRate = 10;  // of one core, for each nanosecond
constexpr double kGroupNanoseconds = 30e3, kMaxGroupNanoseconds = 0.7e6;
constexpr int64_t kGroupsPerWorker = 4;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a block of rows lies in scratch.
struct Rows {
  int64_t reach, phase_positions, phase_floats;

  explicit Rows(const DepthwiseProblem& p)
      : reach((p.kernel[0] - 1) * p.dilation[0] + 1),
        phase_positions(p.out[1] + (p.kernel[1] - 1) * p.dilation[1] / p.stride[1] + 1),
        phase_floats(phase_positions + simd::PlaneRows::kSlack) {}
  int64_t Floats(const DepthwiseProblem& p, int64_t rows) const {
    return ((rows - 1) * p.stride[0] + reach) * p.stride[1] * phase_floats;
  }
};

std::array<int64_t, 2> FirstTwo(const ConvolutionProblem::List& list) { return {list[0], list[1]}; }

bool IsServed(const ops::Convolution& c, ops::Family direction) {
  const ops::DType type = c.result->dtype;
  const bool floating =
      type == ops::DType::kFloat32 || type == ops::DType::kBFloat16 || type == ops::DType::kFloat16;
  bool same = floating && c.spatial <= 2 && c.groups > 1 && c.groups == c.input_channels();
  for (const Operand* const each : {c.input, c.output})
    same &= IsDense(*each, type, Layout::kContiguous) && !IsDense(*each, type, Layout::kChannelsLast);
  same &= c.weight->dtype == type && (c.bias == nullptr || c.bias->dtype == type);
  if (direction == ops::Family::kConvolution) return same;
  same &= direction == ops::Family::kConvolutionInput && c.output_channels() == c.groups;
  for (int d = 0; d < c.spatial; ++d) same &= c.stride[static_cast<size_t>(d)] == 1;
  return same;
}

DepthwiseProblem ReadDepthwise(const ops::Convolution& c, ops::Family direction) {
  const bool forward = direction == ops::Family::kConvolution;
  const Operand &from = forward ? *c.input : *c.output, &to = forward ? *c.output : *c.input;
  DepthwiseProblem p;
  p.type = c.result->dtype;
  p.is_flipped = !forward;
  p.input = static_cast<const std::byte*>(from.data);
  p.weight = static_cast<const std::byte*>(c.weight->data);
  p.output = static_cast<std::byte*>(to.data);
  if (c.bias != nullptr) {
    p.bias = static_cast<const std::byte*>(c.bias->data);
    p.bias_stride = c.bias->strides[0];
  }
  p.batch = c.batch();
  p.channels = to.sizes[1];
  p.per_group = c.output_channels() / c.groups;
  const int64_t* const strides = c.weight->strides.data();
  p.weight_strides = {strides[0], c.spatial == 1 ? 0 : strides[2], strides[c.spatial + 1]};
  const ConvolutionProblem problem = ReadProblem(c, direction, p.type);
  p.in = FirstTwo(forward ? problem.input : problem.output);
  p.out = FirstTwo(forward ? problem.output : problem.input);
  p.kernel = FirstTwo(problem.kernel);
  p.stride = FirstTwo(problem.stride);
  p.padding = FirstTwo(problem.padding);
  p.dilation = FirstTwo(problem.dilation);
  for (size_t d = 0; d < 2 && !forward; ++d) p.padding[d] = (p.kernel[d] - 1) * p.dilation[d] - p.padding[d];
  return p;
}

// Returns false if a row of the output takes too much scratch memory.
bool ChooseRows(DepthwiseProblem& p) {
  const Rows rows(p);
  constexpr auto kMost = static_cast<int64_t>(XPUD_HOST_SCRATCH_BYTES / sizeof(float)) - 4 * kMaxTaps;
  if (rows.Floats(p, 1) > kMost) return false;
  const int64_t row_floats = p.stride[0] * p.stride[1] * rows.phase_floats;
  p.block_rows = std::clamp<int64_t>((kBlockFloats - rows.Floats(p, 1)) / row_floats + 1, 1, p.out[0]);
  return true;
}

int64_t Blocks(const DepthwiseProblem& p) { return CeilDivide(p.out[0], p.block_rows); }

// Element `at` of an array of `type` as f32.
float Element(const std::byte* data, ops::DType type, int64_t at) {
  float value = 0;
  simd::Best().gather({{data + at * static_cast<int64_t>(ops::SizeOf(type)), type, 1, 1},
                       1,
                       1,
                       &value,
                       ops::DType::kFloat32});
  return value;
}

}  // namespace

void RunDepthwise(const void* const* args, const uint32_t group[3], void* scratch) {
  const auto& p = *static_cast<const DepthwiseProblem*>(args[0]);
  const int64_t per_group = *static_cast<const uint32_t*>(args[1]);
  const int64_t blocks = Blocks(p), first = group[0] * per_group,
                last = std::min(first + per_group, p.batch * p.channels * blocks);
  const Rows layout(p);
  const auto element = static_cast<int64_t>(ops::SizeOf(p.type));
  simd::PlaneRows rows;
  rows.dtype = p.type;
  std::copy(p.in.begin(), p.in.end(), rows.in_size);
  std::copy(p.stride.begin(), p.stride.end(), rows.stride);
  std::copy(p.padding.begin(), p.padding.end(), rows.padding);
  rows.out_columns = p.out[1];
  rows.reach = layout.reach;
  rows.phase_positions = layout.phase_positions;
  rows.phase_floats = layout.phase_floats;
  rows.taps = p.kernel[0] * p.kernel[1];
  auto* const offsets = static_cast<int64_t*>(scratch);
  auto* const weights = reinterpret_cast<float*>(offsets + kMaxTaps);
  rows.offsets = offsets;
  rows.weights = weights;
  rows.scratch = weights + kMaxTaps;
  for (int64_t r = 0; r < p.kernel[0]; ++r)
    for (int64_t c = 0; c < p.kernel[1]; ++c) {
      const int64_t column = c * p.dilation[1];
      offsets[r * p.kernel[1] + c] =
          (r * p.dilation[0] * p.stride[1] + column % p.stride[1]) * layout.phase_floats +
          column / p.stride[1];
    }
  int64_t loaded = -1;
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t plane = unit / blocks, channel = plane % p.channels;
    const int64_t source = plane / p.channels * (p.channels / p.per_group) + channel / p.per_group;
    if (channel != loaded) {
      loaded = channel;
      simd::Best().gather({{p.weight + channel * p.weight_strides[0] * element, p.type, p.weight_strides[1],
                            p.weight_strides[2]},
                           p.kernel[0],
                           p.kernel[1],
                           weights,
                           ops::DType::kFloat32});
      if (p.is_flipped) std::reverse(weights, weights + rows.taps);
      if (p.bias != nullptr) rows.bias = Element(p.bias, p.type, channel * p.bias_stride);
    }
    rows.in = p.input + source * p.in[0] * p.in[1] * element;
    rows.out = p.output + plane * p.out[0] * p.out[1] * element;
    rows.first_row = unit % blocks * p.block_rows;
    rows.rows = std::min(p.block_rows, p.out[0] - rows.first_row);
    rows.clears = unit == first || blocks > 1;
    simd::Best().convolve(rows);
  }
}

Depthwise::Depthwise(KernelStore& store, const Kernel& sibling)
    : kernel_(store.AddEntry(sibling, kDepthwiseEntry)) {}

bool Depthwise::Plan(const ops::Convolution& c, ops::Family direction, int workers,
                     LaunchList& launches) const {
  if (!IsServed(c, direction)) return false;
  DepthwiseProblem p = ReadDepthwise(c, direction);
  const bool padded = p.padding[0] >= 0 && p.padding[1] >= 0;
  if (!padded || p.kernel[0] * p.kernel[1] > kMaxTaps || !ChooseRows(p)) return false;
  const int64_t units = p.batch * p.channels * Blocks(p);
  const double outputs = static_cast<double>(p.block_rows * p.out[1]);
  const double unit =
      outputs * static_cast<double>(p.kernel[0] * p.kernel[1]) * 2 / kOperationRate +
      outputs * static_cast<double>(p.stride[0] * p.stride[1] + 1) * sizeof(float) / kByteRate;
  const auto most = static_cast<double>(workers == 1 ? 1 : kGroupsPerWorker * workers);
  const double groups = std::clamp(unit * static_cast<double>(units) / kGroupNanoseconds, 1.0, most);
  const auto per_group =
      static_cast<uint32_t>(std::clamp<int64_t>(std::min(CeilDivide(units, static_cast<int64_t>(groups)),
                                                         static_cast<int64_t>(kMaxGroupNanoseconds / unit)),
                                                1, units));
  Launch& launch = launches.Add();
  launch.Reset(kernel_, static_cast<uint32_t>(CeilDivide(units, per_group)));
  launch.Push(p);
  launch.Push(per_group);
  return true;
}

}  // namespace xpud::kernels::convolution
