#include "kernels/families/convolution.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr float kProductNanoseconds = 1.5f;

ConvolutionTensor<Planned> TensorOf(const Operand& operand) {
  return {operand.data, operand.sizes.data(), operand.strides.data()};
}

}  // namespace

absl::StatusOr<Readiness> ConvolutionPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  ASSIGN_OR_RETURN(const ops::Convolution c, ops::ReadConvolution(call));
  const int64_t items = c.result->numel();
  if (items == 0) return Readiness::kReady;
  ConvolutionKey key;
  key.row = call.row;
  key.type = c.result->dtype;
  key.spatial = c.spatial;
  key.bias = c.bias != nullptr;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  const float products = static_cast<float>(ops::CostOf(call)) / static_cast<float>(items);
  ConvolutionArguments<Planned> arguments{};
  arguments.output = TensorOf(*c.output);
  arguments.input = TensorOf(*c.input);
  arguments.weight = TensorOf(*c.weight);
  arguments.stride = c.stride.data();
  arguments.padding = c.padding.data();
  arguments.dilation = c.dilation.data();
  arguments.groups = c.groups;
  arguments.items = items;
  if (key.bias) {
    arguments.bias = c.bias->data;
    arguments.bias_stride = c.bias->strides[0];
  }
  Launch& launch = launches.Add();
  if (cache_.target() == Target::kHost) {
    arguments.slice = SliceOf(items, products * kProductNanoseconds, /*multiple=*/1);
    launch.Reset(kernel, CeilDiv(items, arguments.slice));
  } else {
    const bool shared = call.row->family == ops::Family::kConvolutionWeight;
    launch.Reset(kernel, shared ? items : CeilDiv(items, kGpuLanes));
    launch.group_size = {kGpuLanes, 1, 1};
  }
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = Emitter::Values;
using Tensor = ConvolutionTensor<Emitted>;

class ConvolutionEmission {
 public:
  ConvolutionEmission(const ConvolutionKey& key, const ConvolutionArguments<Emitted>& arguments,
                      Emitter& emitter)
      : key_(key), args_(arguments), e_(emitter), spatial_(static_cast<size_t>(key.spatial)) {}

  void Run() {
    if (!e_.gpu()) {
      Value const begin = e_.Mul(e_.Group(0), args_.slice);
      e_.Loop(begin, e_.Min(e_.Add(begin, args_.slice), args_.items), e_.I64(1),
              [&](Value item) { EmitItem(item); });
    } else if (key_.row->family == ops::Family::kConvolutionWeight) {
      EmitItem(e_.Group(0));
    } else {
      Value const item = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
      e_.If(e_.ir().CreateICmpSLT(item, args_.items), [&] { EmitItem(item); });
    }
  }

 private:
  // A position, and whether it is inside its tensor.
  struct Place {
    Values at;
    Value inside = nullptr;
  };

  void EmitItem(Value item) {
    switch (key_.row->family) {
      case ops::Family::kConvolutionInput:
        return EmitInputGradient(item);
      case ops::Family::kConvolutionWeight:
        return EmitWeightGradient(item);
      default:
        return EmitForward(item);
    }
  }

  // ---- the three sums

  void EmitForward(Value item) {
    const Values at = IndicesOf(item, args_.output, 0);
    const Values position(at.begin() + 2, at.end());
    Value const group = GroupOf(at[1], args_.output), channels = args_.weight.sizes[1];
    const auto product = [&](Value k, Value sum) {
      const Values kernel = PositionOf(k, args_.weight);
      const Place from = Read(position, kernel);
      Value const x = Offset(args_.input, at[0], e_.Mul(group, channels), from.at);
      Value const w = Offset(args_.weight, at[1], e_.I64(0), kernel);
      return SumOver(channels, sum, from.inside, {args_.input, x, args_.input.strides[1]},
                     {args_.weight, w, args_.weight.strides[1]});
    };
    Store(args_.output, Offset(args_.output, at[0], at[1], position),
          WithBias(SumOverKernel(product), at[1]));
  }

  void EmitInputGradient(Value item) {
    const Values at = IndicesOf(item, args_.input, 0);
    const Values position(at.begin() + 2, at.end());
    Value const group = GroupOf(at[1], args_.input), channels = PerGroup(args_.output);
    Value const first = e_.Mul(group, channels), own = e_.ir().CreateURem(at[1], args_.weight.sizes[1]);
    const auto product = [&](Value k, Value sum) {
      const Values kernel = PositionOf(k, args_.weight);
      const Place reader = ReaderOf(position, kernel);
      Value const g = Offset(args_.output, at[0], first, reader.at);
      Value const w = Offset(args_.weight, first, own, kernel);
      return SumOver(channels, sum, reader.inside, {args_.output, g, args_.output.strides[1]},
                     {args_.weight, w, args_.weight.strides[0]});
    };
    Store(args_.input, Offset(args_.input, at[0], at[1], position), WithBias(SumOverKernel(product), at[1]));
  }

  void EmitWeightGradient(Value item) {
    const Values at = IndicesOf(item, args_.weight, 0);
    const Values kernel(at.begin() + 2, at.end());
    Value const channel = e_.Add(e_.Mul(GroupOf(at[0], args_.output), args_.weight.sizes[1]), at[1]);
    Value const count = e_.Mul(args_.output.sizes[0], PositionsOf(args_.output));
    const auto step = [&](Value k, const Values& sum) -> Values {
      const Values where = IndicesOf(k, args_.output, 1);  // batch, position
      const Values position(where.begin() + 1, where.end());
      const Place from = Read(position, kernel);
      Value const g = Load(args_.output, Offset(args_.output, where[0], at[0], position));
      Value const x = Load(args_.input, Offset(args_.input, where[0], channel, from.at));
      return {AddProduct(sum[0], from.inside, g, x)};
    };
    Values sum =
        e_.Loop(e_.gpu() ? e_.Lane() : e_.I64(0), count, e_.gpu() ? e_.Lanes() : e_.I64(1), {Zero()}, step);
    if (e_.gpu()) {
      sum = e_.MergeLanes(
          sum, [&](const Values& a, const Values& b) -> Values { return {e_.ir().CreateFAdd(a[0], b[0])}; },
          /*once=*/true);
    }
    Value const offset = Offset(args_.weight, at[0], at[1], kernel);
    if (!e_.gpu()) return Store(args_.weight, offset, sum[0]);
    e_.If(e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0)), [&] { Store(args_.weight, offset, sum[0]); });
  }

  // ---- indices

  // Splits a row-major index over the tensor's dimensions; skips dimension `skipped`, unless it is 0.
  Values IndicesOf(Value item, const Tensor& tensor, size_t skipped) {
    Values at;
    for (size_t d = spatial_ + 2; d-- > 0;) {
      if (d == skipped && skipped != 0) continue;
      at.insert(at.begin(), d == 0 ? item : e_.ir().CreateURem(item, tensor.sizes[d]));
      if (d > 0) item = e_.ir().CreateUDiv(item, tensor.sizes[d]);
    }
    return at;
  }
  Values PositionOf(Value k, const Tensor& tensor) {
    Values at(spatial_);
    for (size_t d = spatial_; d-- > 0;) {
      at[d] = d == 0 ? k : e_.ir().CreateURem(k, tensor.sizes[d + 2]);
      if (d > 0) k = e_.ir().CreateUDiv(k, tensor.sizes[d + 2]);
    }
    return at;
  }
  Value PositionsOf(const Tensor& tensor) {
    Value count = tensor.sizes[2];
    for (size_t d = 1; d < spatial_; ++d) count = e_.Mul(count, tensor.sizes[d + 2]);
    return count;
  }
  Value PerGroup(const Tensor& tensor) { return e_.ir().CreateUDiv(tensor.sizes[1], args_.groups); }
  // The group of a channel of `tensor`.
  Value GroupOf(Value channel, const Tensor& tensor) { return e_.ir().CreateUDiv(channel, PerGroup(tensor)); }
  Value Offset(const Tensor& tensor, Value first, Value second, const Values& position) {
    Value offset = e_.Add(e_.Mul(first, tensor.strides[0]), e_.Mul(second, tensor.strides[1]));
    for (size_t d = 0; d < spatial_; ++d) offset = e_.Add(offset, e_.Mul(position[d], tensor.strides[d + 2]));
    return offset;
  }

  // Returns `at` clamped into [0, size), and adds to `place` whether it was inside.
  void AddPlace(Value at, Value size, Value valid, Place& place) {
    Value const inside = e_.ir().CreateAnd(valid, e_.ir().CreateICmpULT(at, size));
    place.at.push_back(e_.ir().CreateSelect(inside, at, e_.I64(0)));
    place.inside = place.inside == nullptr ? inside : e_.ir().CreateAnd(place.inside, inside);
  }
  // Which position of the input the output's `position` reads at the kernel's position.
  Place Read(const Values& position, const Values& kernel) {
    Place place;
    for (size_t d = 0; d < spatial_; ++d) {
      Value const at = e_.ir().CreateSub(
          e_.Add(e_.Mul(position[d], args_.stride[d]), e_.Mul(kernel[d], args_.dilation[d])),
          args_.padding[d]);
      AddPlace(at, args_.input.sizes[d + 2], e_.ir().getTrue(), place);
    }
    return place;
  }
  // Which position of the output reads the input's `position` at the kernel's position.
  Place ReaderOf(const Values& position, const Values& kernel) {
    Place place;
    for (size_t d = 0; d < spatial_; ++d) {
      Value const steps =
          e_.ir().CreateSub(e_.Add(position[d], args_.padding[d]), e_.Mul(kernel[d], args_.dilation[d]));
      Value const whole = e_.ir().CreateICmpEQ(e_.ir().CreateSRem(steps, args_.stride[d]), e_.I64(0));
      Value const positive = e_.ir().CreateICmpSGE(steps, e_.I64(0));
      AddPlace(e_.ir().CreateSDiv(steps, args_.stride[d]), args_.output.sizes[d + 2],
               e_.ir().CreateAnd(whole, positive), place);
    }
    return place;
  }

  // ---- sums

  Value Zero() { return e_.Constant(key_.accumulate(), 0); }
  Value Load(const Tensor& tensor, Value offset) {
    return e_.Load(key_.type, tensor.data, offset, key_.accumulate());
  }
  void Store(const Tensor& tensor, Value offset, Value value) {
    e_.Store(key_.type, tensor.data, offset, value, key_.accumulate());
  }
  Value WithBias(Value sum, Value channel) {
    if (!key_.bias) return sum;
    return e_.ir().CreateFAdd(
        sum, e_.Load(key_.type, args_.bias, e_.Mul(channel, args_.bias_stride), key_.accumulate()));
  }
  Value AddProduct(Value sum, Value inside, Value a, Value b) {
    return e_.ir().CreateSelect(inside, e_.ir().CreateFAdd(sum, e_.ir().CreateFMul(a, b)), sum);
  }
  Value SumOverKernel(const std::function<Value(Value k, Value sum)>& product) {
    return e_.Loop(e_.I64(0), PositionsOf(args_.weight), e_.I64(1), {Zero()},
                   [&](Value k, const Values& sum) -> Values { return {product(k, sum[0])}; })[0];
  }
  // A line of channels.
  struct Line {
    const Tensor& tensor;
    Value begin, stride;
  };
  Value SumOver(Value channels, Value sum, Value inside, const Line& a, const Line& b) {
    Value const count = e_.ir().CreateSelect(inside, channels, e_.I64(0));
    return e_.Loop(e_.I64(0), count, e_.I64(1), {sum}, [&](Value c, const Values& now) -> Values {
      Value const x = Load(a.tensor, e_.Add(a.begin, e_.Mul(c, a.stride)));
      Value const y = Load(b.tensor, e_.Add(b.begin, e_.Mul(c, b.stride)));
      return {e_.ir().CreateFAdd(now[0], e_.ir().CreateFMul(x, y))};
    })[0];
  }

  const ConvolutionKey& key_;
  const ConvolutionArguments<Emitted>& args_;
  Emitter& e_;
  const size_t spatial_;
};

}  // namespace

absl::Status ConvolutionSkeleton::EmitBody(const ConvolutionKey& key,
                                           const ConvolutionArguments<Emitted>& arguments, Emitter& e) const {
  ConvolutionEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kConvolutionPlanner = MakePlanner<ConvolutionPlanner>;
constinit const PlannerFactory kConvolutionInputPlanner = MakePlanner<ConvolutionPlanner>;
constinit const PlannerFactory kConvolutionWeightPlanner = MakePlanner<ConvolutionPlanner>;

}  // namespace xpud::kernels
