#include "proto/ops/families/convolution.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// Of sizes and attributes: sums and products of two of them do not overflow.
constexpr int64_t kMax = (int64_t{1} << 31) - 1;

// Reads a list of `spatial` numbers, each at least `least`.
absl::Status ReadList(const Integers& list, const char* name, int spatial, int64_t least,
                      std::array<int64_t, kMaxSpatial>& to) {
  if (list.size() != static_cast<size_t>(spatial))
    return absl::InvalidArgumentError(absl::StrCat(name, " has ", list.size(), " numbers, one for each of ",
                                                   spatial, " dimensions is needed"));
  for (size_t d = 0; d < list.size(); ++d) {
    to[d] = list[d];
    if (to[d] < least || to[d] > kMax)
      return absl::InvalidArgumentError(
          absl::StrCat(name, " is ", to[d], ", at least ", least, " and below 2^31 is allowed"));
  }
  return absl::OkStatus();
}

Given IfPresent(Given operand) { return operand->present ? operand : nullptr; }

// The tensors, of which none is null but for the bias.
ConvolutionAttributes TensorsOf(const Call& call, Convolution& c) {
  switch (call.row->family) {
    case Family::kConvolutionInput: {
      const auto read = Read<ConvolutionInputCall>(call);
      c.output = read.gradient, c.weight = read.weight, c.input = c.result = read.out;
      c.bias = IfPresent(read.bias);
      return read.attributes;
    }
    case Family::kConvolutionWeight: {
      const auto read = Read<ConvolutionWeightCall>(call);
      c.output = read.gradient, c.input = read.input, c.weight = c.result = read.out;
      return read.attributes;
    }
    default: {
      const auto read = Read<ConvolutionCall>(call);
      c.input = read.input, c.weight = read.weight, c.output = c.result = read.out;
      c.bias = IfPresent(read.bias);
      return read.attributes;
    }
  }
}

// The tensors, and the attributes.
absl::StatusOr<Convolution> ReadParts(const Call& call) {
  Convolution c;
  const ConvolutionAttributes attributes = TensorsOf(call, c);
  c.spatial = c.weight->rank - 2;
  if (c.spatial < 1 || c.spatial > kMaxSpatial)
    return absl::InvalidArgumentError(
        absl::StrCat("weight ", Describe(*c.weight), " has rank ", c.weight->rank, ", 3 to 5 is needed"));
  RETURN_IF_ERROR(ReadList(attributes.stride, "stride", c.spatial, 1, c.stride));
  RETURN_IF_ERROR(ReadList(attributes.padding, "padding", c.spatial, 0, c.padding));
  RETURN_IF_ERROR(ReadList(attributes.dilation, "dilation", c.spatial, 1, c.dilation));
  c.groups = attributes.groups;
  c.allow_tf32 = attributes.allow_tf32;
  c.deterministic = attributes.deterministic;
  return c;
}

// Returns S' for S along spatial dimension `d`, or -1 if the kernel is larger than the padded input.
int64_t OutputSize(const Convolution& c, size_t d) {
  const int64_t covered = c.dilation[d] * (c.weight->sizes[d + 2] - 1) + 1;
  const int64_t steps = c.input->sizes[d + 2] + 2 * c.padding[d] - covered;
  return steps < 0 ? -1 : steps / c.stride[d] + 1;
}

absl::Status CheckChannels(const Convolution& c) {
  if (c.groups < 1 || c.input->sizes[1] % c.groups != 0 || c.weight->sizes[0] % c.groups != 0)
    return absl::InvalidArgumentError(absl::StrCat(c.groups, " groups do not divide input ",
                                                   Describe(*c.input), " and weight ", Describe(*c.weight)));
  if (c.weight->sizes[1] == c.input->sizes[1] / c.groups) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("weight ", Describe(*c.weight), " does not fit input ",
                                                 Describe(*c.input), " in ", c.groups, " groups"));
}

absl::Status CheckSpatial(const Convolution& c) {
  for (size_t d = 0; d < static_cast<size_t>(c.spatial); ++d) {
    if (std::min(c.weight->sizes[d + 2], c.input->sizes[d + 2]) < 1)
      return Invalid("a convolution's kernel and input must have a position");
    if (std::max(c.weight->sizes[d + 2], c.input->sizes[d + 2]) > kMax)
      return Invalid("a convolution's sizes must be below 2^31");
    if (OutputSize(c, d) >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("kernel of weight ", Describe(*c.weight),
                                                   " with dilation ", c.dilation[d], " is larger than input ",
                                                   Describe(*c.input), " with padding ", c.padding[d]));
  }
  return absl::OkStatus();
}

absl::Status Check(const Call& call) { return ReadConvolution(call).status(); }

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  ASSIGN_OR_RETURN(const Convolution c, ReadParts(call));
  RETURN_IF_ERROR(NeedRank(*c.input, "input", c.spatial + 2));
  RETURN_IF_ERROR(CheckChannels(c));
  RETURN_IF_ERROR(CheckSpatial(c));
  Operand& out = *Outputs<ConvolutionCall>(outputs).out;
  SetOutputLike(out, *c.input);
  out.sizes[1] = c.weight->sizes[0];
  for (size_t d = 0; d < static_cast<size_t>(c.spatial); ++d) out.sizes[d + 2] = OutputSize(c, d);
  return absl::OkStatus();
}

// Sizes beside one of 0 may be of any magnitude.
double ElementsOf(const Operand& operand) {
  double elements = 1;
  for (int d = 0; d < operand.rank; ++d)
    elements *= static_cast<double>(operand.sizes[static_cast<size_t>(d)]);
  return elements;
}

double Products(const Call& call) {
  const absl::StatusOr<Convolution> c = ReadParts(call);
  if (!c.ok()) return 0;
  const double output = ElementsOf(*c->output), weight = ElementsOf(*c->weight);
  double each = output;
  for (size_t d = 1; d < c->weight->rank; ++d) each *= static_cast<double>(c->weight->sizes[d]);
  return output + ElementsOf(*c->input) + weight + each;
}

// An example of a convolution of images; the tensors have the names of the forward direction.
struct Example {
  explicit Example(DType type)
      : input{{1, 2, 3, 3}, type}, weight{{3, 2, 2, 2}, type}, output{{1, 3, 2, 2}, type} {}
  ConvolutionAttributes attributes() const {
    return {.stride = ones, .padding = zeros, .dilation = ones, .groups = 1};
  }
  const NumberList ones = {1, 1}, zeros = {0, 0};
  const Sample::Tensor input, weight, output;
};

Sample MakeSample(const Row&, DType type) {
  const Example e(type);
  return SampleOf(ConvolutionCall<Sample::Tensor>{.out = e.output,
                                                  .input = e.input,
                                                  .weight = e.weight,
                                                  .bias = {{3}, type},
                                                  .attributes = e.attributes()});
}

Sample MakeInputSample(const Row&, DType type) {
  const Example e(type);
  return SampleOf(ConvolutionInputCall<Sample::Tensor>{.out = e.input,
                                                       .gradient = e.output,
                                                       .weight = e.weight,
                                                       .bias = {{2}, type},
                                                       .attributes = e.attributes()});
}

Sample MakeWeightSample(const Row&, DType type) {
  const Example e(type);
  return SampleOf(ConvolutionWeightCall<Sample::Tensor>{
      .out = e.weight, .gradient = e.output, .input = e.input, .attributes = e.attributes()});
}

}  // namespace

absl::StatusOr<Convolution> ReadConvolution(const Call& call) {
  ASSIGN_OR_RETURN(const Convolution c, ReadParts(call));
  RETURN_IF_ERROR(NeedRank(*c.input, "input", c.spatial + 2));
  RETURN_IF_ERROR(NeedRank(*c.output, "output", c.spatial + 2));
  RETURN_IF_ERROR(CheckChannels(c));
  RETURN_IF_ERROR(CheckSpatial(c));
  bool fits = c.output->sizes[0] == c.input->sizes[0] && c.output->sizes[1] == c.weight->sizes[0];
  for (size_t d = 0; d < static_cast<size_t>(c.spatial); ++d)
    fits &= c.output->sizes[d + 2] == OutputSize(c, d);
  if (!fits)
    return absl::InvalidArgumentError(absl::StrCat("input ", Describe(*c.input), " and weight ",
                                                   Describe(*c.weight), " do not give output ",
                                                   Describe(*c.output)));
  const DType type = c.output->dtype;
  RETURN_IF_ERROR(NeedSameType(*c.input, "input", type));
  RETURN_IF_ERROR(NeedSameType(*c.weight, "weight", type));
  if (c.bias == nullptr) return c;
  RETURN_IF_ERROR(NeedSameType(*c.bias, "bias", type));
  RETURN_IF_ERROR(NeedSizes(*c.bias, "bias", {c.result->sizes[1]}));
  return c;
}

constinit const FamilyDescriptor kConvolutionFamily = Described<ConvolutionCall>({.name = "convolution",
                                                                                  .title = "convolution",
                                                                                  .check = Check,
                                                                                  .infer = Infer,
                                                                                  .cost = Products,
                                                                                  .sample = MakeSample});
constinit const FamilyDescriptor kConvolutionInputFamily =
    Described<ConvolutionInputCall>({.name = "convolution_input",
                                     .title = "convolution, gradient by the input",
                                     .check = Check,
                                     .cost = Products,
                                     .sample = MakeInputSample});
constinit const FamilyDescriptor kConvolutionWeightFamily =
    Described<ConvolutionWeightCall>({.name = "convolution_weight",
                                      .title = "convolution, gradient by the weight",
                                      .check = Check,
                                      .cost = Products,
                                      .sample = MakeWeightSample});

}  // namespace xpud::ops
