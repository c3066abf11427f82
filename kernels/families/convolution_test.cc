// Convolutions and their gradients, compared with one loop over all products: spatial ranks, strides,
// padding, dilation, groups, types and layouts. Whatever serves the device is tested: a vendor's library or
// our own kernel.
#include <cmath>
#include <cstdlib>

#include "gtest/gtest.h"
#include "kernels/testing/device_test_fixture.h"
#include "kernels/testing/tensor.h"

namespace xpud::kernels {
namespace {

using ops::DType;

class ConvolutionTest : public DeviceTest {
 protected:
  struct Case {
    int64_t batch = 2, input_channels = 3, output_channels = 4, groups = 1;
    std::vector<int64_t> input = {7, 6}, kernel = {3, 3};
    std::vector<int64_t> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
    DType type = DType::kFloat32;
    bool channels_last = false;
    bool bias = true;
    int64_t extra = 0;  // positions of the input that no kernel reaches
  };
  using Sizes = std::vector<int64_t>;

  static Sizes Strides(const Sizes& sizes, bool channels_last) {
    Sizes strides(sizes.size());
    int64_t next = 1;
    if (channels_last) {
      strides[1] = 1;
      next = sizes[1];
    }
    for (size_t d = sizes.size(); d-- > 0;) {
      if (channels_last && d == 1) continue;
      strides[d] = next;
      next *= sizes[d];
    }
    return strides;
  }

  // The tensors of a case, with random values in all of them.
  struct Tensors {
    explicit Tensors(const Case& c, std::mt19937_64& random)
        : input(Make(c, Prefixed(c.batch, c.input_channels, c.input))),
          weight(Make(c, Prefixed(c.output_channels, c.input_channels / c.groups, c.kernel))),
          output(Make(c, Prefixed(c.batch, c.output_channels, OutputOf(c)))),
          bias(c.type, Sizes{c.output_channels}),
          input_bias(c.type, Sizes{c.input_channels}) {
      for (TestTensor* const tensor : {&input, &weight, &output, &bias, &input_bias})
        Randomise(*tensor, random, {.low = -1, .high = 1});
    }
    static Sizes Prefixed(int64_t a, int64_t b, const Sizes& rest) {
      Sizes sizes = {a, b};
      sizes.insert(sizes.end(), rest.begin(), rest.end());
      return sizes;
    }
    static Sizes OutputOf(const Case& c) {
      Sizes sizes;
      for (size_t d = 0; d < c.kernel.size(); ++d)
        sizes.push_back(
            (c.input[d] + 2 * c.padding[d] - c.dilation[d] * (c.kernel[d] - 1) - 1) / c.stride[d] + 1);
      return sizes;
    }
    static TestTensor Make(const Case& c, const Sizes& sizes) {
      return TestTensor(c.type, sizes, Strides(sizes, c.channels_last));
    }

    TestTensor input, weight, output, bias, input_bias;
  };

  static int64_t Index(const Sizes& at, const Sizes& sizes) {
    int64_t index = 0;
    for (size_t d = 0; d < at.size(); ++d) index = index * sizes[d] + at[d];
    return index;
  }
  // Calls visit(at) for each index of `sizes`.
  static void ForEach(const Sizes& sizes, const std::function<void(const Sizes&)>& visit) {
    for (const int64_t size : sizes)
      if (size == 0) return;
    Sizes at(sizes.size());
    for (;;) {
      visit(at);
      size_t d = sizes.size();
      while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
      if (d == 0) return;
    }
  }

  // Calls visit(output, input, weight) with the row-major indices of each product.
  static void ForEachProduct(const Case& c, const Tensors& t,
                             const std::function<void(int64_t, int64_t, int64_t)>& visit) {
    const int64_t per_input = c.input_channels / c.groups, per_output = c.output_channels / c.groups;
    ForEach(t.output.sizes(), [&](const Sizes& out) {
      ForEach(t.weight.sizes(), [&](const Sizes& w) {
        if (w[0] != out[1]) return;
        Sizes in = {out[0], out[1] / per_output * per_input + w[1]};
        for (size_t d = 0; d < c.kernel.size(); ++d) {
          in.push_back(out[d + 2] * c.stride[d] - c.padding[d] + w[d + 2] * c.dilation[d]);
          if (in.back() < 0 || in.back() >= c.input[d]) return;
        }
        visit(Index(out, t.output.sizes()), Index(in, t.input.sizes()), Index(w, t.weight.sizes()));
      });
    });
  }

  static std::vector<ops::Number> Attributes(const Case& c) {
    std::vector<ops::Number> attributes;
    for (const Sizes* const list : {&c.stride, &c.padding, &c.dilation}) {
      attributes.push_back(ops::Number::Integer(static_cast<int64_t>(list->size())));
      for (const int64_t each : *list) attributes.push_back(ops::Number::Integer(each));
    }
    for (const int64_t each : {c.groups, int64_t{0}, int64_t{1}})  // then allow_tf32, deterministic
      attributes.push_back(ops::Number::Integer(each));
    return attributes;
  }

  void Run(const Case& c, const char* row, const TestTensor& out, const std::vector<Operand>& inputs) {
    const Operand output = out.operand();
    const std::vector<ops::Number> attributes = Attributes(c);
    const absl::Status status = device_.Run(*library_, {.row = &ops::RowOf(row),
                                                        .compute = c.type,
                                                        .outputs = {&output, 1},
                                                        .inputs = inputs,
                                                        .attributes = attributes});
    ASSERT_TRUE(status.ok()) << row << ": " << status;
    EXPECT_TRUE(out.MarginsIntact()) << row;
  }

  // `sums` and `magnitudes` (sums of absolute values) are exact.
  static void Compare(const char* row, const TestTensor& got, const std::vector<double>& sums,
                      const std::vector<double>& magnitudes) {
    const double epsilon = got.dtype() == DType::kFloat64   ? 1e-14
                           : got.dtype() == DType::kFloat32 ? 1e-6
                           : got.dtype() == DType::kFloat16 ? 1e-3
                                                            : 8e-3;
    for (int64_t i = 0; i < got.numel(); ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_NEAR(static_cast<double>(got.At(i)), sums[at], epsilon * (magnitudes[at] + 1))
          << row << " " << i;
    }
  }

  struct Sums {
    explicit Sums(int64_t size) : value(static_cast<size_t>(size)), magnitude(static_cast<size_t>(size)) {}
    void Add(int64_t at, Exact product) {
      value[static_cast<size_t>(at)] += static_cast<double>(product);
      magnitude[static_cast<size_t>(at)] += std::fabs(static_cast<double>(product));
    }
    std::vector<double> value, magnitude;
  };
  // Adds the bias of each element's channel.
  static void AddBias(const TestTensor& like, const TestTensor& bias, Sums& sums) {
    ForEach(like.sizes(), [&](const Sizes& at) { sums.Add(Index(at, like.sizes()), bias.At(at[1])); });
  }

  void Check(const Case& c) {
    Tensors t(c, random_);
    Sums output(t.output.numel()), input(t.input.numel()), weight(t.weight.numel());
    ForEachProduct(c, t, [&](int64_t o, int64_t i, int64_t w) {
      output.Add(o, t.input.At(i) * t.weight.At(w));
      input.Add(i, t.output.At(o) * t.weight.At(w));
      weight.Add(w, t.output.At(o) * t.input.At(i));
    });
    if (c.bias) {
      AddBias(t.output, t.bias, output);
      AddBias(t.input, t.input_bias, input);
    }
    Operand absent;
    absent.present = false;
    const TestTensor out = Tensors::Make(c, t.output.sizes()), dx = Tensors::Make(c, t.input.sizes()),
                     dw = Tensors::Make(c, t.weight.sizes());
    Run(c, "xpud::convolution", out,
        {t.input.operand(), t.weight.operand(), c.bias ? t.bias.operand() : absent});
    Compare("forward", out, output.value, output.magnitude);
    Run(c, "xpud::convolution_input", dx,
        {t.output.operand(), t.weight.operand(), c.bias ? t.input_bias.operand() : absent});
    Compare("by the input", dx, input.value, input.magnitude);
    Run(c, "xpud::convolution_weight", dw, {t.output.operand(), t.input.operand()});
    Compare("by the weight", dw, weight.value, weight.magnitude);
  }

  std::mt19937_64 random_{5};
};

TEST_F(ConvolutionTest, EveryTypeAndLayout) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const bool last : {false, true}) {
      Check({.padding = {1, 1}, .type = type, .channels_last = last});
      Check(
          {.input_channels = 16, .output_channels = 32, .type = type, .channels_last = last, .bias = false});
    }
  }
}

TEST_F(ConvolutionTest, StridesPaddingDilation) {
  for (const bool last : {false, true}) {
    Check({.stride = {2, 1}, .padding = {1, 2}, .channels_last = last});
    Check({.stride = {3, 2}, .padding = {2, 0}, .dilation = {2, 1}, .channels_last = last});
    Check({.input = {9, 12}, .dilation = {3, 2}, .channels_last = last});
    Check({.input = {8, 9},
           .kernel = {1, 1},
           .stride = {2, 2},
           .channels_last = last});  // some positions are never read
    Check({.input = {5, 5}, .kernel = {5, 5}, .channels_last = last});
    Check({.input = {3, 4}, .kernel = {5, 5}, .padding = {2, 2}, .channels_last = last});
    Check({.input = {2, 2},
           .kernel = {1, 1},
           .padding = {3, 3},
           .channels_last = last});  // outputs that read nothing
  }
}

// Some of them are computed as others: from fewer positions of the input, or by the transposed weight.
TEST_F(ConvolutionTest, KernelsOfOnePosition) {
  for (const bool last : {false, true}) {
    for (const DType type : {DType::kFloat32, DType::kBFloat16}) {
      for (const int64_t stride : {1, 2})
        Check({.batch = 3,
               .input_channels = 20,
               .output_channels = 36,
               .input = {31, 30},
               .kernel = {1, 1},
               .stride = {stride, stride},
               .type = type,
               .channels_last = last});
      Check({.input_channels = 6,
             .output_channels = 4,
             .groups = 2,
             .kernel = {1, 1},
             .stride = {1, 3},
             .type = type,
             .channels_last = last,
             .bias = false});
    }
    Check({.input = {19},
           .kernel = {1},
           .stride = {3},
           .padding = {0},
           .dilation = {1},
           .channels_last = last});
    Check({.input = {5, 6, 7},
           .kernel = {1, 1, 1},
           .stride = {1, 2, 2},
           .padding = {0, 0, 0},
           .dilation = {1, 1, 1},
           .channels_last = last});
  }
}

TEST_F(ConvolutionTest, Groups) {
  for (const bool last : {false, true}) {
    Check({.input_channels = 4, .output_channels = 6, .groups = 2, .padding = {1, 1}, .channels_last = last});
    Check({.input_channels = 16,
           .output_channels = 16,
           .groups = 16,
           .padding = {1, 1},
           .channels_last = last});
    Check({.input_channels = 5, .output_channels = 10, .groups = 5, .stride = {2, 2}, .channels_last = last});
    Check({.input_channels = 32, .output_channels = 32, .groups = 4, .channels_last = last});
  }
}

// A channel of the input for each group, in contiguous images on the CPU also row by row.
TEST_F(ConvolutionTest, Depthwise) {
  for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
    for (const int64_t stride : {1, 2, 3})
      Check({.input_channels = 5,
             .output_channels = 5,
             .groups = 5,
             .input = {23, 37},
             .stride = {stride, stride},
             .padding = {1, 1},
             .type = type});
    Check({.input_channels = 3,
           .output_channels = 9,
           .groups = 3,
           .input = {12, 75},
           .kernel = {5, 2},
           .stride = {1, 2},
           .padding = {0, 3},  // more than the kernel reaches
           .dilation = {2, 3},
           .type = type});
  }
  Check({.input_channels = 4,
         .output_channels = 4,
         .groups = 4,
         .input = {9, 4},
         .kernel = {7, 7},
         .padding = {3, 3},
         .bias = false});
  Check({.input_channels = 2,
         .output_channels = 2,
         .groups = 2,
         .input = {150, 520},  // several blocks of rows
         .padding = {1, 0}});
  Check({.input_channels = 4,
         .output_channels = 8,
         .groups = 4,
         .input = {40},
         .kernel = {3},
         .stride = {2},
         .padding = {1},
         .dilation = {1}});
}

TEST_F(ConvolutionTest, OneAndThreeSpatialDimensions) {
  for (const bool last : {false, true}) {
    Check({.input = {20},
           .kernel = {4},
           .stride = {2},
           .padding = {1},
           .dilation = {2},
           .channels_last = last});
    Check({.input = {5, 6, 4},
           .kernel = {2, 3, 1},
           .stride = {1, 2, 1},
           .padding = {1, 0, 0},
           .dilation = {1, 1, 1},
           .channels_last = last});
  }
}

TEST_F(ConvolutionTest, LargerThanOneSlice) {
  for (const bool last : {false, true}) {
    Check({.batch = 3,
           .input_channels = 16,
           .output_channels = 24,
           .input = {20, 21},
           .padding = {1, 1},
           .channels_last = last});
    Check({.batch = 1,
           .input_channels = 3,
           .output_channels = 16,
           .input = {33, 29},
           .kernel = {7, 7},
           .stride = {2, 2},
           .padding = {3, 3},
           .channels_last = last});
    Check({.batch = 1,
           .input_channels = 64,
           .output_channels = 48,
           .input = {25, 25},
           .kernel = {1, 1},
           .channels_last = last});
  }
}

TEST_F(ConvolutionTest, NothingIsDoneForNothing) {
  Check({.batch = 0});
  Check({.output_channels = 0});
}

TEST_F(ConvolutionTest, ChannelsThatAreNotThere) {
  Check({.input_channels = 0});  // the bias alone
}

}  // namespace
}  // namespace xpud::kernels
