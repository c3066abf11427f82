// Maxima of windows over the last dimensions, their positions, and what is done with these positions. A
// position is the element's row-major number in its plane, which the last 1 to 3 dimensions are.
// MaxPool: values[N.., O..], indices[N.., O..] <- self[N.., I..]. The first maximum wins; the last NaN does.
// MaxPoolBackward: grad_input[N.., I..] <- grad_output[N.., O..], indices[N.., O..]: the sums of the
// gradients of the windows whose position an element is. MaxUnpool: element indices[i] of each of out's
// planes becomes self[i]; the last one wins. The other elements keep what they held.
#include <algorithm>
#include <vector>

#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"
#include "proto/ops/windows.h"

namespace xpud::ops {
namespace {

constexpr Parameter kSelf[] = {{"self"}}, kValuesAndIndices[] = {{"values"}, {"indices"}};
constexpr Parameter kGradientAndIndices[] = {{"grad_output"}, {"indices"}}, kGradient[] = {{"grad_input"}};
constexpr Parameter kSelfAndIndices[] = {{"self"}, {"indices", kIndices}}, kOut[] = {{"out"}};
// A list has an element for each dimension of a plane. If adaptive, windows divide the plane evenly.
constexpr Attribute kAttributes[] = {{"adaptive", AttributeType::kBool},
                                     {"kernel", AttributeType::kIntegers},
                                     {"stride", AttributeType::kIntegers},
                                     {"padding", AttributeType::kIntegers},
                                     {"dilation", AttributeType::kIntegers}};
constexpr Attribute kSpatial[] = {{"spatial", AttributeType::kInteger}};

absl::Status CheckForward(const Call& call) {
  const Operand &values = call.outputs[0], &indices = call.outputs[1], &self = call.inputs[0];
  RETURN_IF_ERROR(NeedSameType(values, "output", self.dtype));
  RETURN_IF_ERROR(NeedSameType(indices, "indices", DType::kInt64));
  RETURN_IF_ERROR(NeedSameSizes(indices, values, "indices"));
  return MaxPoolOf(call, self, values).status();
}

absl::Status CheckBackward(const Call& call) {
  const Operand &out = call.outputs[0], &gradient = call.inputs[0], &indices = call.inputs[1];
  RETURN_IF_ERROR(NeedTensor(indices, "indices"));
  RETURN_IF_ERROR(NeedSameType(out, "output", gradient.dtype));
  RETURN_IF_ERROR(NeedSameType(indices, "indices", DType::kInt64));
  RETURN_IF_ERROR(NeedSameSizes(indices, gradient, "indices"));
  return MaxPoolOf(call, out, gradient).status();
}

absl::Status CheckUnpool(const Call& call) {
  const Operand &out = call.outputs[0], &self = call.inputs[0], &indices = call.inputs[1];
  RETURN_IF_ERROR(NeedSameType(out, "output", self.dtype));
  RETURN_IF_ERROR(NeedSameSizes(indices, self, "indices"));
  RETURN_IF_ERROR(NeedRank(out, "output", self.rank));
  const int64_t spatial = call.attributes[0].AsInteger();
  if (spatial < 1 || spatial > kMaxSpatial || spatial > self.rank)
    return Invalid("max_unpool needs 1 to 3 spatial dimensions");
  for (int d = 0; d < self.rank - spatial; ++d) {
    if (out.sizes[d] != self.sizes[d]) return NeedSameSizes(out, self, "output");
  }
  double plane = 1;
  for (int64_t d = self.rank - spatial; d < self.rank; ++d)
    plane *= static_cast<double>(std::max(out.sizes[d], self.sizes[d]));
  return plane < 0x1p62 ? absl::OkStatus() : Invalid("its planes have more than 2^62 elements");
}

int64_t PlaneOf(const Call& call) {
  const Operand& out = call.outputs[0];
  int64_t plane = 1;
  for (int64_t d = out.rank - call.attributes[0].AsInteger(); d < out.rank; ++d) plane *= out.sizes[d];
  return plane;
}

// Elements of windows, or windows that may cover an element.
double CostOfWindows(const Call& call, const Operand& in, const Operand& out, bool backward) {
  const absl::StatusOr<MaxPoolSpec> spec = MaxPoolOf(call, in, out);
  if (!spec.ok()) return 0;
  double cost = 1;
  for (int d = 0; d < in.rank - spec->spatial; ++d) cost *= static_cast<double>(in.sizes[d]);
  for (int d = 0; d < spec->spatial; ++d) {
    const Window& w = spec->windows[static_cast<size_t>(d)];
    const auto from = static_cast<double>(w.in), to = static_cast<double>(w.out);
    const auto kernel = static_cast<double>(w.kernel), stride = static_cast<double>(w.stride);
    if (spec->adaptive) {
      cost *= 2 * (from + to);
    } else if (backward) {
      cost *= from * std::min(to, kernel * static_cast<double>(w.dilation) / stride + 1);
    } else {
      cost *= to * std::min(kernel, from);
    }
  }
  return cost;
}

std::vector<Number> SampleAttributes() {
  std::vector<Number> numbers = {Number::Integer(0)};
  for (const int64_t value : {2, 2, 0, 1}) {
    numbers.push_back(Number::Integer(1));
    numbers.push_back(Number::Integer(value));
  }
  return numbers;
}

}  // namespace

constinit const FamilyDescriptor kMaxPoolFamily = {
    .name = "max_pool",
    .title = "maxima of windows",
    .outputs = kValuesAndIndices,
    .inputs = kSelf,
    .attributes = kAttributes,
    .check = CheckForward,
    .cost = [](const Call& call) { return CostOfWindows(call, call.inputs[0], call.outputs[0], false); },
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{2, 3}, type}, {{2, 3}, DType::kInt64}}, {{{2, 6}, type}}, SampleAttributes()};
    }};
constinit const FamilyDescriptor kMaxPoolBackwardFamily = {
    .name = "max_pool_backward",
    .title = "gradients of maxima of windows",
    .outputs = kGradient,
    .inputs = kGradientAndIndices,
    .attributes = kAttributes,
    .check = CheckBackward,
    .cost = [](const Call& call) { return CostOfWindows(call, call.outputs[0], call.inputs[0], true); },
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{2, 6}, type}}, {{{2, 3}, type}, {{2, 3}, DType::kInt64}}, SampleAttributes()};
    }};
constinit const FamilyDescriptor kMaxUnpoolFamily = {
    .name = "max_unpool",
    .title = "elements put back at their positions",
    .outputs = kOut,
    .inputs = kSelfAndIndices,
    .attributes = kSpatial,
    .reads_outputs = true,
    .check = CheckUnpool,
    .index_limit = PlaneOf,
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{2, 6}, type}}, {{{2, 3}, type}, {{2, 3}, DType::kInt64}}, {Number::Integer(1)}};
    }};

}  // namespace xpud::ops
