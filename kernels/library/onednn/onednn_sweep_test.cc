// oneDNN's convolutions over shapes, types, layouts and directions, compared with plain loops. Elements are
// small whole numbers, so that sums are exact in f32 in any order, and a difference is an error, not
// rounding. CTest runs this for each of oneDNN's instruction sets (ONEDNN_MAX_CPU_ISA) that the CPU has;
// `tools/test --full` takes all shapes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "kernels/library/onednn/convolution_plan.h"
#include "kernels/library/onednn/primitive.h"
#include "proto/base/ze_ext.h"

namespace xpud::kernels::onednn {
namespace {

using ops::DType;
using ops::Family;

// Skips a run of CTest that would repeat another one: with an instruction set that this CPU lacks oneDNN
// takes the next older one. DEFAULT is the newest, which has a run of its own if it is one of these.
class NotTwice : public ::testing::Environment {
  void SetUp() override {
    static const std::map<std::string, dnnl_cpu_isa_t> sets = {
        {"SSE41", dnnl_cpu_isa_sse41},
        {"AVX2", dnnl_cpu_isa_avx2},
        {"AVX512_CORE", dnnl_cpu_isa_avx512_core},
        {"AVX512_CORE_VNNI", dnnl_cpu_isa_avx512_core_vnni},
        {"AVX512_CORE_BF16", dnnl_cpu_isa_avx512_core_bf16},
        {"AVX512_CORE_FP16", dnnl_cpu_isa_avx512_core_fp16}};
    const char* const limit = std::getenv("ONEDNN_MAX_CPU_ISA");
    if (limit == nullptr) return;
    const dnnl_cpu_isa_t used = dnnl_get_effective_cpu_isa();
    const auto named = sets.find(limit);
    if (named != sets.end() && named->second != used) GTEST_SKIP() << "this CPU has no " << limit;
    const auto is_used = [&](const auto& set) { return set.second == used; };
    if (named == sets.end() && std::any_of(sets.begin(), sets.end(), is_used))
      GTEST_SKIP() << "a run of its own has this CPU's newest instruction set";
  }
};
[[maybe_unused]] const ::testing::Environment* const kNotTwice =
    ::testing::AddGlobalTestEnvironment(new NotTwice);

struct Shape {
  int64_t batch, inputs, outputs, groups, size, kernel, stride, padding, dilation;

  int64_t output() const { return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; }
  std::string Name() const {
    std::string name;
    for (const int64_t each : {batch, inputs, outputs, groups, size, kernel, stride, padding, dilation})
      name += std::to_string(each) + " ";
    return name;
  }
};

struct Window {
  int64_t kernel, stride, padding, dilation;
};
constexpr Window kWindows[] = {{1, 1, 0, 1}, {1, 2, 0, 1}, {2, 2, 0, 1}, {2, 1, 0, 1},
                               {2, 4, 0, 1}, {3, 1, 1, 1}, {3, 1, 2, 2}, {3, 2, 1, 1},
                               {3, 3, 0, 1}, {4, 2, 0, 1}, {4, 2, 1, 1}, {4, 4, 0, 1},
                               {5, 1, 2, 1}, {6, 2, 0, 1}, {7, 2, 3, 1}, {8, 8, 0, 1}};

// All shapes take minutes.
std::vector<Shape> Shapes() {
  const bool full = std::getenv("XPUD_TEST_FULL") != nullptr;
  const std::vector<int64_t> inputs =
      full ? std::vector<int64_t>{3, 16, 32, 40, 48, 64, 80, 112, 144} : std::vector<int64_t>{3, 48, 64, 80};
  const std::vector<int64_t> outputs =
      full ? std::vector<int64_t>{16, 33, 48, 64, 160} : std::vector<int64_t>{48, 64};
  std::vector<Shape> shapes;
  for (const Window& w : kWindows) {
    for (const int64_t ci : inputs)
      for (const int64_t co : outputs)
        shapes.push_back({2, ci, co, 1, 16, w.kernel, w.stride, w.padding, w.dilation});
    for (const int64_t channels : {int64_t{16}, int64_t{48}})
      shapes.push_back({2, channels, channels, channels, 16, w.kernel, w.stride, w.padding, w.dilation});
    shapes.push_back({2, 96, 96, 2, 16, w.kernel, w.stride, w.padding, w.dilation});
  }
  return shapes;
}

float Read(const std::byte* data, DType type, size_t i) {
  if (type == DType::kFloat32) return reinterpret_cast<const float*>(data)[i];
  if (type == DType::kFloat16) return static_cast<float>(reinterpret_cast<const _Float16*>(data)[i]);
  const uint32_t bits = uint32_t{reinterpret_cast<const uint16_t*>(data)[i]} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
// REQUIRES: the type has the value.
void Write(std::byte* data, DType type, size_t i, float value) {
  if (type == DType::kFloat32) {
    reinterpret_cast<float*>(data)[i] = value;
  } else if (type == DType::kFloat16) {
    reinterpret_cast<_Float16*>(data)[i] = static_cast<_Float16>(value);
  } else {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    reinterpret_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
  }
}

// [images, channels, size, size] in f32, row-major.
using Plane = std::vector<float>;

std::vector<std::byte> Lay(const Plane& values, int64_t images, int64_t channels, Layout layout, DType type) {
  std::vector<std::byte> bytes(values.size() * ops::SizeOf(type));
  const int64_t positions = static_cast<int64_t>(values.size()) / (images * channels);
  for (int64_t n = 0; n < images; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < positions; ++p) {
        const int64_t from = (n * channels + c) * positions + p;
        const int64_t to = layout == Layout::kContiguous ? from : (n * positions + p) * channels + c;
        Write(bytes.data(), type, static_cast<size_t>(to), values[static_cast<size_t>(from)]);
      }
  return bytes;
}

class Sweep : public ::testing::TestWithParam<std::tuple<DType, Family>> {
 protected:
  Sweep() : scratch_(new std::byte[XPUD_HOST_SCRATCH_BYTES + 64]) {}
  std::byte* scratch() const {
    return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch_.get()) + 63) / 64 * 64);
  }

  Plane Numbers(size_t count) {
    Plane values(count);
    for (float& value : values) value = static_cast<float>(static_cast<int>(random_() % 5) - 2);
    return values;
  }

  // Calls visit(input, weight, output) with the indices of each product.
  template <typename Visit>
  static void EachProduct(const Shape& s, Visit visit) {
    const int64_t out = s.output(), ci = s.inputs / s.groups, co = s.outputs / s.groups;
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t o = 0; o < s.outputs; ++o)
        for (int64_t i = 0; i < ci; ++i)
          for (int64_t ky = 0; ky < s.kernel; ++ky)
            for (int64_t kx = 0; kx < s.kernel; ++kx) {
              const int64_t w = ((o * ci + i) * s.kernel + ky) * s.kernel + kx;
              const int64_t channel = n * s.inputs + o / co * ci + i;
              for (int64_t y = 0; y < out; ++y) {
                const int64_t row = y * s.stride - s.padding + ky * s.dilation;
                if (row < 0 || row >= s.size) continue;
                for (int64_t x = 0; x < out; ++x) {
                  const int64_t column = x * s.stride - s.padding + kx * s.dilation;
                  if (column < 0 || column >= s.size) continue;
                  visit(static_cast<size_t>((channel * s.size + row) * s.size + column),
                        static_cast<size_t>(w),
                        static_cast<size_t>(((n * s.outputs + o) * out + y) * out + x));
                }
              }
            }
  }

  static LaidConvolution Laid(const Shape& s, DType type, Family direction, Layout layout) {
    LaidConvolution laid;
    ConvolutionProblem& p = laid.problem;
    p.batch = s.batch;
    p.groups = s.groups;
    p.input_channels = s.inputs;
    p.output_channels = s.outputs;
    p.spatial = 2;
    for (size_t d = 0; d < 2; ++d) {
      p.input[d] = s.size;
      p.output[d] = s.output();
      p.kernel[d] = s.kernel;
      p.stride[d] = s.stride;
      p.padding[d] = s.padding;
      p.dilation[d] = s.dilation;
    }
    p.direction = direction;
    p.type = type;
    laid.input = laid.output = layout;
    return laid;
  }

  // Returns false if oneDNN has only its reference.
  bool Check(const Shape& s, DType type, Family direction, Layout layout) {
    const LaidConvolution laid = Laid(s, type, direction, layout);
    const ConvolutionPlan plan(laid);
    if (!plan.usable()) return false;
    const auto square = [](int64_t x) { return static_cast<size_t>(x * x); };
    const size_t images = static_cast<size_t>(s.batch);
    Plane in = Numbers(images * static_cast<size_t>(s.inputs) * square(s.size)),
          out = Numbers(images * static_cast<size_t>(s.outputs) * square(s.output())),
          weight = Numbers(static_cast<size_t>(s.outputs * s.inputs / s.groups) * square(s.kernel));
    Plane want(direction == Family::kConvolution        ? out.size()
               : direction == Family::kConvolutionInput ? in.size()
                                                        : weight.size());
    EachProduct(s, [&](size_t i, size_t w, size_t o) {
      if (direction == Family::kConvolution) want[o] += in[i] * weight[w];
      if (direction == Family::kConvolutionInput) want[i] += out[o] * weight[w];
      if (direction == Family::kConvolutionWeight) want[w] += in[i] * out[o];
    });
    const Plane got = Compute(plan, s, type, direction, layout, in, weight, out);
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double unit = direction == Family::kConvolutionWeight || type == DType::kFloat32 ? 0
                          : type == DType::kBFloat16                                         ? 0x1p-8
                                                                                             : 0x1p-11;
      const double error = std::fabs(double{got[i]} - double{want[i]}) - unit * std::fabs(double{want[i]});
      worst = std::isnan(error) ? error : std::max(worst, error);
      if (std::isnan(worst)) break;
    }
    EXPECT_EQ(worst, 0) << "convolution " << static_cast<int>(direction) << " of " << ops::Info(type).name
                        << ", layout " << static_cast<int>(layout) << ": " << s.Name();
    return true;
  }

  Plane Compute(const ConvolutionPlan& plan, const Shape& s, DType type, Family direction, Layout layout,
                const Plane& in, const Plane& weight, const Plane& out) {
    std::vector<std::byte> input = Lay(in, s.batch, s.inputs, layout, type),
                           output = Lay(out, s.batch, s.outputs, layout, type);
    const bool sums = direction == Family::kConvolutionWeight;
    const DType weight_type = sums ? DType::kFloat32 : type;
    std::vector<std::byte> weights(weight.size() * ops::SizeOf(weight_type));
    for (size_t i = 0; i < weight.size(); ++i) Write(weights.data(), weight_type, i, weight[i]);
    WeightView view;
    view.data = weights.data();
    view.strides = {s.inputs / s.groups * s.kernel * s.kernel, s.kernel * s.kernel, s.kernel, 1};
    std::vector<std::byte> packed(plan.weight_bytes() * static_cast<size_t>(plan.sums()) + 64);
    auto* const at =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(packed.data()) + 63) / 64 * 64);
    const auto slice_at = [&](int64_t slice) { return at + static_cast<size_t>(slice) * plan.slice_bytes(); };
    for (int64_t slice = 0; slice < plan.slices() && !sums; ++slice) plan.Pack(view, slice, slice_at(slice));
    for (int64_t part = 0; part < plan.parts(); ++part) {
      const ConvolutionOperands operands = {
          .input = input.data(),
          .weight = sums ? plan.SumOf(part, at) : slice_at(plan.SliceOf(part)),
          .output = output.data()};
      plan.RunPart(part, operands, scratch());
    }
    if (sums) {
      plan.AddSums(at, 0, plan.weight_elements());
      for (int64_t slice = 0; slice < plan.slices(); ++slice) plan.Unpack(slice_at(slice), slice, view);
    }
    const bool forward = direction == Family::kConvolution;
    const std::vector<std::byte>& result = sums ? weights : forward ? output : input;
    Plane got(result.size() / ops::SizeOf(weight_type));
    const int64_t channels = forward ? s.outputs : s.inputs;
    const int64_t positions = sums ? 0 : static_cast<int64_t>(got.size()) / (s.batch * channels);
    for (size_t i = 0; i < got.size(); ++i) {
      size_t from = i;
      if (!sums && layout == Layout::kChannelsLast) {
        const auto position = static_cast<int64_t>(i) % positions,
                   plane = static_cast<int64_t>(i) / positions;
        from = static_cast<size_t>((plane / channels * positions + position) * channels + plane % channels);
      }
      got[i] = Read(result.data(), weight_type, from);
    }
    return got;
  }

  std::unique_ptr<std::byte[]> scratch_;
  std::mt19937_64 random_{38};
};

TEST_P(Sweep, ConvolutionsAreExactForWholeNumbers) {
  const auto [type, direction] = GetParam();
  if (!MultipliesNatively(type)) GTEST_SKIP() << "this CPU computes " << ops::Info(type).name << " in f32";
  int computed = 0, refused = 0;
  for (const Shape& shape : Shapes())
    for (const Layout layout : {Layout::kChannelsLast, Layout::kContiguous})
      ++(Check(shape, type, direction, layout) ? computed : refused);
  RecordProperty("computed", computed);
  RecordProperty("refused", refused);
  std::printf("%d computed, %d refused\n", computed, refused);
  // The planner computes what is refused in f32.
  if (type == DType::kFloat32) EXPECT_GT(computed, refused);
}

INSTANTIATE_TEST_SUITE_P(All, Sweep,
                         ::testing::Combine(::testing::Values(DType::kFloat32, DType::kBFloat16,
                                                              DType::kFloat16),
                                            ::testing::Values(Family::kConvolution, Family::kConvolutionInput,
                                                              Family::kConvolutionWeight)));

}  // namespace
}  // namespace xpud::kernels::onednn
