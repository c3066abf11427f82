// Convolutions and their gradients over 1 to 3 spatial dimensions:
// convolution: out[N,Co,S'] <- input[N,Ci,S], weight[Co,Ci/groups,K], bias?[Co].
// Its gradient by the input: out[N,Ci,S] <- gradient[N,Co,S'], weight, bias?[Ci]. This is the transposed
// convolution, too, which may have a bias. Its gradient by the weight: out[Co,Ci/groups,K] <-
// gradient[N,Co,S'], input[N,Ci,S]. Along each spatial dimension S' = (S + 2 padding - dilation (K - 1) - 1)
// / stride + 1.
#include "proto/ops/convolution.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}};
constexpr Parameter kForwardInputs[] = {{"input"}, {"weight"}, {"bias", kOptional}};
constexpr Parameter kInputInputs[] = {{"gradient"}, {"weight"}, {"bias", kOptional}};
constexpr Parameter kWeightInputs[] = {{"gradient"}, {"input"}};
constexpr Attribute kAttributes[] = {
    {"stride", AttributeType::kIntegers},   {"padding", AttributeType::kIntegers},
    {"dilation", AttributeType::kIntegers}, {"groups", AttributeType::kInteger},
    {"allow_tf32", AttributeType::kBool},   {"deterministic", AttributeType::kBool}};

// Of sizes and attributes: sums and products of two of them do not overflow.
constexpr int64_t kMax = (int64_t{1} << 31) - 1;

// Takes a list of `spatial` numbers, each at least `least`, from the attributes.
absl::Status TakeList(std::span<const Number>& attributes, const char* name, int spatial, int64_t least,
                      std::array<int64_t, kMaxSpatial>& to) {
  const int64_t length = attributes[0].AsInteger();
  if (length != spatial)
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", length, " numbers, one for each of ", spatial, " dimensions is needed"));
  for (int d = 0; d < spatial; ++d) {
    to[static_cast<size_t>(d)] = attributes[static_cast<size_t>(d) + 1].AsInteger();
    if (to[static_cast<size_t>(d)] < least || to[static_cast<size_t>(d)] > kMax)
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", to[static_cast<size_t>(d)], ", at least ",
                                                     least, " and below 2^31 is allowed"));
  }
  attributes = attributes.subspan(static_cast<size_t>(spatial) + 1);
  return absl::OkStatus();
}

// The tensors, and the attributes.
absl::StatusOr<Convolution> ReadParts(const Call& call) {
  Convolution c;
  switch (call.row->family) {
    case Family::kConvolutionInput:
      c.output = &call.inputs[0], c.weight = &call.inputs[1], c.input = &call.outputs[0];
      break;
    case Family::kConvolutionWeight:
      c.output = &call.inputs[0], c.input = &call.inputs[1], c.weight = &call.outputs[0];
      break;
    default:
      c.input = &call.inputs[0], c.weight = &call.inputs[1], c.output = &call.outputs[0];
  }
  if (call.inputs.size() > 2 && call.inputs[2].present) c.bias = &call.inputs[2];
  c.spatial = c.weight->rank - 2;
  if (c.spatial < 1 || c.spatial > kMaxSpatial)
    return absl::InvalidArgumentError(
        absl::StrCat("weight ", Describe(*c.weight), " has rank ", c.weight->rank, ", 3 to 5 is needed"));
  std::span<const Number> attributes = call.attributes;
  RETURN_IF_ERROR(TakeList(attributes, "stride", c.spatial, 1, c.stride));
  RETURN_IF_ERROR(TakeList(attributes, "padding", c.spatial, 0, c.padding));
  RETURN_IF_ERROR(TakeList(attributes, "dilation", c.spatial, 1, c.dilation));
  c.groups = attributes[0].AsInteger();
  c.allow_tf32 = attributes[1].AsInteger() != 0;
  c.deterministic = attributes[2].AsInteger() != 0;
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

absl::Status CheckBias(const Call& call, const Operand& bias) {
  RETURN_IF_ERROR(NeedSameType(bias, "bias", call.inputs[0].dtype));
  return NeedSizes(bias, "bias", {call.outputs[0].sizes[1]});
}

absl::Status Check(const Call& call) {
  RETURN_IF_ERROR(ReadConvolution(call).status());
  return NeedSameType(call.outputs[0], "output", call.inputs[0].dtype);
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  ASSIGN_OR_RETURN(const Convolution c, ReadParts(call));
  RETURN_IF_ERROR(NeedRank(*c.input, "input", c.spatial + 2));
  RETURN_IF_ERROR(CheckChannels(c));
  RETURN_IF_ERROR(CheckSpatial(c));
  SetOutputLike(outputs[0], *c.input);
  outputs[0].sizes[1] = c.weight->sizes[0];
  for (size_t d = 0; d < static_cast<size_t>(c.spatial); ++d) outputs[0].sizes[d + 2] = OutputSize(c, d);
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

std::vector<Number> SampleAttributes() {
  std::vector<Number> attributes;
  for (const int64_t each : {1, 0, 1}) {  // stride, padding, dilation
    attributes.push_back(Number::Integer(2));
    attributes.insert(attributes.end(), 2, Number::Integer(each));
  }
  for (const int64_t each : {1, 0, 0}) attributes.push_back(Number::Integer(each));  // groups, modes
  return attributes;
}

Sample MakeSample(const Row& row, DType type) {
  const Sample::Tensor input = {{1, 2, 3, 3}, type}, weight = {{3, 2, 2, 2}, type},
                       output = {{1, 3, 2, 2}, type};
  switch (row.family) {
    case Family::kConvolutionInput:
      return {.outputs = {input}, .inputs = {output, weight, {{2}, type}}, .attributes = SampleAttributes()};
    case Family::kConvolutionWeight:
      return {.outputs = {weight}, .inputs = {output, input}, .attributes = SampleAttributes()};
    default:
      return {.outputs = {output}, .inputs = {input, weight, {{3}, type}}, .attributes = SampleAttributes()};
  }
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
  RETURN_IF_ERROR(NeedSameType(call.inputs[1], "second input", call.inputs[0].dtype));
  if (c.bias != nullptr) RETURN_IF_ERROR(CheckBias(call, *c.bias));
  return c;
}

constinit const FamilyDescriptor kConvolutionFamily = {.name = "convolution",
                                                       .title = "convolution",
                                                       .outputs = kOut,
                                                       .inputs = kForwardInputs,
                                                       .attributes = kAttributes,
                                                       .check = Check,
                                                       .infer = Infer,
                                                       .cost = Products,
                                                       .sample = MakeSample};
constinit const FamilyDescriptor kConvolutionInputFamily = {.name = "convolution_input",
                                                            .title = "convolution, gradient by the input",
                                                            .outputs = kOut,
                                                            .inputs = kInputInputs,
                                                            .attributes = kAttributes,
                                                            .check = Check,
                                                            .cost = Products,
                                                            .sample = MakeSample};
constinit const FamilyDescriptor kConvolutionWeightFamily = {.name = "convolution_weight",
                                                             .title = "convolution, gradient by the weight",
                                                             .outputs = kOut,
                                                             .inputs = kWeightInputs,
                                                             .attributes = kAttributes,
                                                             .check = Check,
                                                             .cost = Products,
                                                             .sample = MakeSample};

}  // namespace xpud::ops
