#include "proto/ops/families/max_pool.h"

#include <algorithm>

#include "proto/base/status_macros.h"
#include "proto/ops/families/windows.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status CheckForward(const Call& call) {
  const auto pool = Read<MaxPoolCall>(call);
  RETURN_IF_ERROR(NeedSameType(*pool.values, "output", pool.self->dtype));
  RETURN_IF_ERROR(NeedSameType(*pool.indices, "indices", DType::kInt64));
  RETURN_IF_ERROR(NeedSameSizes(*pool.indices, *pool.values, "indices"));
  return MaxPoolOf(pool.attributes, *pool.self, *pool.values).status();
}

absl::Status CheckBackward(const Call& call) {
  const auto pool = Read<MaxPoolBackwardCall>(call);
  const Operand &out = *pool.grad_input, &gradient = *pool.grad_output, &indices = *pool.indices;
  RETURN_IF_ERROR(NeedTensor(indices, "indices"));
  RETURN_IF_ERROR(NeedSameType(out, "output", gradient.dtype));
  RETURN_IF_ERROR(NeedSameType(indices, "indices", DType::kInt64));
  RETURN_IF_ERROR(NeedSameSizes(indices, gradient, "indices"));
  return MaxPoolOf(pool.attributes, out, gradient).status();
}

absl::Status CheckUnpool(const Call& call) {
  const auto unpool = Read<MaxUnpoolCall>(call);
  const Operand &out = *unpool.out, &self = *unpool.self;
  RETURN_IF_ERROR(NeedSameType(out, "output", self.dtype));
  RETURN_IF_ERROR(NeedSameSizes(*unpool.indices, self, "indices"));
  RETURN_IF_ERROR(NeedRank(out, "output", self.rank));
  const int64_t spatial = unpool.spatial;
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
  const auto unpool = Read<MaxUnpoolCall>(call);
  const Operand& out = *unpool.out;
  int64_t plane = 1;
  for (int64_t d = out.rank - unpool.spatial; d < out.rank; ++d) plane *= out.sizes[d];
  return plane;
}

// Elements of windows, or windows that may cover an element.
double CostOfWindows(const MaxPoolAttributes& attributes, const Operand& in, const Operand& out,
                     bool backward) {
  const absl::StatusOr<MaxPoolSpec> spec = MaxPoolOf(attributes, in, out);
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

double Cost(const Call& call) {
  const auto pool = Read<MaxPoolCall>(call);
  return CostOfWindows(pool.attributes, *pool.self, *pool.values, false);
}

double CostOfBackward(const Call& call) {
  const auto pool = Read<MaxPoolBackwardCall>(call);
  return CostOfWindows(pool.attributes, *pool.grad_input, *pool.grad_output, true);
}

struct SampleNumbers {
  MaxPoolAttributes attributes() const {
    return {.kernel = twos, .stride = twos, .padding = zeros, .dilation = ones};
  }
  const NumberList twos = {2}, zeros = {0}, ones = {1};
};

Sample MakeSample(const Row&, DType type) {
  const SampleNumbers numbers;
  return SampleOf(MaxPoolCall<Sample::Tensor>{.values = {{2, 3}, type},
                                              .indices = {{2, 3}, DType::kInt64},
                                              .self = {{2, 6}, type},
                                              .attributes = numbers.attributes()});
}

Sample MakeBackwardSample(const Row&, DType type) {
  const SampleNumbers numbers;
  return SampleOf(MaxPoolBackwardCall<Sample::Tensor>{.grad_input = {{2, 6}, type},
                                                      .grad_output = {{2, 3}, type},
                                                      .indices = {{2, 3}, DType::kInt64},
                                                      .attributes = numbers.attributes()});
}

Sample MakeUnpoolSample(const Row&, DType type) {
  return SampleOf(MaxUnpoolCall<Sample::Tensor>{
      .out = {{2, 6}, type}, .self = {{2, 3}, type}, .indices = {{2, 3}, DType::kInt64}, .spatial = 1});
}

}  // namespace

constinit const FamilyDescriptor kMaxPoolFamily = Described<MaxPoolCall>({.name = "max_pool",
                                                                          .title = "maxima of windows",
                                                                          .check = CheckForward,
                                                                          .cost = Cost,
                                                                          .sample = MakeSample});
constinit const FamilyDescriptor kMaxPoolBackwardFamily =
    Described<MaxPoolBackwardCall>({.name = "max_pool_backward",
                                    .title = "gradients of maxima of windows",
                                    .check = CheckBackward,
                                    .cost = CostOfBackward,
                                    .sample = MakeBackwardSample});
constinit const FamilyDescriptor kMaxUnpoolFamily =
    Described<MaxUnpoolCall>({.name = "max_unpool",
                              .title = "elements put back at their positions",
                              .check = CheckUnpool,
                              .index_limit = PlaneOf,
                              .sample = MakeUnpoolSample});

}  // namespace xpud::ops
