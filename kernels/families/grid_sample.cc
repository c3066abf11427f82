#include "kernels/families/grid_sample.h"

#include <algorithm>
#include <vector>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "kernels/families/window_emission.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/grid_sample.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr int64_t kChannelSlice = 16;
constexpr float kSampleNanoseconds = 20, kChannelNanoseconds = 2;

// Returns five strides: `spatial` ones end at the last dimension, or before the components of a grid.
std::array<int64_t, 5> StridesOf(const Operand& operand, bool grid) {
  const size_t spatial = operand.rank - 2u, first = grid ? 1 : 2;
  std::array<int64_t, 5> strides{};
  strides[0] = operand.strides[0];
  if (!grid) strides[1] = operand.strides[1];
  for (size_t d = 0; d < spatial; ++d) strides[first + 3 - spatial + d] = operand.strides[first + d];
  if (grid) strides[4] = operand.strides[operand.rank - 1u];
  return strides;
}

std::array<int64_t, 3> SizesOf(const Operand& operand) {
  std::array<int64_t, 3> sizes = {1, 1, 1};
  const size_t spatial = operand.rank - 2u;
  for (size_t d = 0; d < spatial; ++d) sizes[3 - spatial + d] = operand.sizes[2 + d];
  return sizes;
}

// Returns whether offsets in a plane of `operand` fit in 31 bits.
bool IsNarrow(const Operand& operand) {
  double reach = 0;
  for (int d = 2; d < operand.rank; ++d)
    reach += static_cast<double>(operand.sizes[d]) * static_cast<double>(operand.strides[d]);
  return reach < 0x1p30;
}

}  // namespace

absl::StatusOr<Readiness> GridSamplePlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const bool backward = call.row->family == ops::Family::kGridSampleBackward;
  const bool gpu = cache_.target() != Target::kHost;
  const auto read = ops::Read<ops::GridSampleCall>(call);
  const auto gradients =
      backward ? ops::Read<ops::GridSampleBackwardCall>(call) : ops::GridSampleBackwardCall<ops::Given>();
  const Operand& samples = backward ? *gradients.grad_output : *read.out;
  const Operand &input = backward ? *gradients.input : *read.input,
                &grid = backward ? *gradients.grid : *read.grid;
  const ops::GridSampleAttributes& attributes = backward ? gradients.attributes : read.attributes;
  GridSampleKey key;
  key.type = input.dtype;
  key.mode = static_cast<GridMode>(attributes.interpolation_mode);
  key.padding = static_cast<GridPadding>(attributes.padding_mode);
  key.align_corners = attributes.align_corners;
  key.volumes = input.rank == 5;
  GridSampleArguments<Planned> arguments;
  arguments.input = input.data;
  arguments.grid = grid.data;
  arguments.gradient = backward ? samples.data : nullptr;
  arguments.input_strides = StridesOf(input, false);
  arguments.grid_strides = StridesOf(grid, true);
  arguments.gradient_strides = StridesOf(samples, false);
  arguments.in = SizesOf(input);
  arguments.out = SizesOf(samples);
  arguments.channels = input.sizes[1];
  const int64_t rows = samples.sizes[0] * arguments.out[0] * arguments.out[1], row = arguments.out[2];
  const float each = kSampleNanoseconds + kChannelNanoseconds * static_cast<float>(arguments.channels);

  struct Part {
    GridSampleKey key;
    const Operand* result;
    const Kernel* kernel;
  };
  std::vector<Part> parts;
  if (backward) {
    parts = {{key, gradients.grad_input, nullptr}, {key, gradients.grad_grid, nullptr}};
    parts[0].key.part = GridPart::kInputGradient;
    parts[1].key.part = GridPart::kGridGradient;
  } else {
    parts = {{key, read.out, nullptr}};
    parts[0].key.part = GridPart::kSample;
  }
  std::erase_if(parts, [&](const Part& part) { return rows * row == 0 || part.result->numel() == 0; });
  for (Part& part : parts) {
    part.key.vectors = !backward && !gpu && samples.strides[samples.rank - 1u] == 1 && IsNarrow(input) &&
                       row < (int64_t{1} << 30);
    ASSIGN_OR_RETURN(part.kernel, cache_.Find(skeleton_, part.key));
  }
  for (const Part& part : parts)
    if (part.kernel == nullptr) return Readiness::kCompiling;
  for (const Part& part : parts) {
    const bool by_planes = part.key.part == GridPart::kInputGradient;
    arguments.result = part.result->data;
    arguments.result_strides = StridesOf(*part.result, part.key.part == GridPart::kGridGradient);
    arguments.channel_slice = gpu ? 1 : kChannelSlice;
    const int64_t units =
        by_planes ? input.sizes[0] * CeilDiv(arguments.channels, arguments.channel_slice) : rows;
    arguments.count = gpu && !by_planes ? rows * row : units;
    arguments.slice = gpu ? kGpuLanes : by_planes ? 1 : SliceOf(units, each * static_cast<float>(row), 1);
    Launch& launch = launches.Add();
    launch.Reset(part.kernel, CeilDiv(arguments.count, arguments.slice));
    if (gpu) launch.group_size = {kGpuLanes, 1, 1};
    PushArguments(part.key, arguments, launch);
  }
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class GridSampleEmission : WindowEmission {
 public:
  GridSampleEmission(const GridSampleKey& key, const GridSampleArguments<Emitted>& arguments,
                     Emitter& emitter)
      : WindowEmission(emitter), key_(key), args_(arguments), e_(emitter), real_(AccumulateOf(key.type)) {}

  void Run() {
    if (key_.part == GridPart::kInputGradient) return ForEachUnit([&](Value unit) { EmitPlanes(unit); });
    if (e_.gpu()) {
      return ForEachUnit([&](Value unit) {
        Value const row = args_.out[2];
        EmitSample(RowOf(e_.ir().CreateUDiv(unit, row)), e_.ir().CreateURem(unit, row), 1);
      });
    }
    ForEachUnit([&](Value unit) {
      const Row row = RowOf(unit);
      Value next = e_.I64(0);
      if (key_.vectors) {
        Value const whole = e_.ir().CreateAnd(args_.out[2], e_.I64(-int64_t{kGatherWidth}));
        e_.Loop(next, whole, e_.I64(kGatherWidth), [&](Value x) { EmitSample(row, x, kGatherWidth); });
        next = whole;
      }
      e_.Loop(next, args_.out[2], e_.I64(1), [&](Value x) { EmitSample(row, x, 1); });
    });
  }

 private:
  // A row of samples: number of the batch, z and y.
  struct Row {
    Value n, z, y;
  };
  // An element along one dimension, with its weight and the weight's derivative. Positions are i64, or
  // vectors of i32.
  struct AxisTap {
    Value position, inside, weight, slope;
  };
  struct Axis {
    std::vector<AxisTap> taps;
    Value slope;  // of the position, by the grid's value
  };
  // An element around a sample: its offset in a plane, and the derivatives of its weight by x, y, z.
  struct Tap {
    Value offset, inside, weight;
    Values slopes;
  };

  void ForEachUnit(const std::function<void(Value)>& body) {
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = Min(e_.Add(begin, args_.slice), args_.count);
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), body);
  }

  Row RowOf(Value unit) {
    Value const rest = e_.ir().CreateUDiv(unit, args_.out[1]);
    return {e_.ir().CreateUDiv(rest, args_.out[0]), e_.ir().CreateURem(rest, args_.out[0]),
            e_.ir().CreateURem(unit, args_.out[1])};
  }

  // ---- reals of any width

  Value Real(double value) { return e_.Constant(real_, value, width_); }
  Value FromInteger(Value i64) { return Splat(e_.Convert(i64, Scalar::kI64, real_), width_); }
  Value FAdd(Value a, Value b) { return e_.ir().CreateFAdd(a, b); }
  Value FSub(Value a, Value b) { return e_.ir().CreateFSub(a, b); }
  Value FMul(Value a, Value b) { return e_.ir().CreateFMul(a, b); }
  Value FDiv(Value a, Value b) { return e_.ir().CreateFDiv(a, b); }
  Value Select(Value condition, Value a, Value b) { return e_.ir().CreateSelect(condition, a, b); }
  Value Less(Value a, Value b) { return e_.ir().CreateFCmpOLT(a, b); }
  Value Floor(Value a) { return e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::floor, a); }
  // NaN becomes the lower bound.
  Value FClamp(Value a, Value low, Value high) {
    Value const above = Select(e_.ir().CreateFCmpOGT(a, low), a, low);
    return Select(Less(above, high), above, high);
  }

  // ---- positions

  // The position of the grid's value along a dimension of `size` elements.
  Value Unnormalised(Value value, Value size) {
    Value const n = FromInteger(size), shifted = FAdd(value, Real(1));
    if (key_.align_corners) return FMul(FMul(shifted, Real(0.5)), FSub(n, Real(1)));
    return FMul(FSub(FMul(shifted, n), Real(1)), Real(0.5));
  }

  // Moves a position into the plane as the padding says, and multiplies `slope` by the derivative.
  Value Padded(Value position, Value size, Value& slope) {
    if (key_.padding == GridPadding::kZeros) return position;
    Value const zero = Real(0), last = FSub(FromInteger(size), Real(1));
    if (key_.padding == GridPadding::kReflection) position = Reflected(position, size, slope);
    Value const inside = e_.ir().CreateAnd(e_.ir().CreateFCmpOGT(position, zero), Less(position, last));
    slope = Select(inside, slope, zero);
    // As in ATen, NaN is the first element of a plane, but the last one of a volume.
    return key_.volumes
               ? e_.ir().CreateFNeg(FClamp(e_.ir().CreateFNeg(position), e_.ir().CreateFNeg(last), zero))
               : FClamp(position, zero, last);
  }

  // Reflects between the first and last centres, or edges, of pixels.
  Value Reflected(Value position, Value size, Value& slope) {
    Value const low = Real(key_.align_corners ? 0 : -0.5);
    Value const span = FSub(FromInteger(size), Real(key_.align_corners ? 1 : 0)), twice = FMul(span, Real(2));
    Value const from_low = FSub(position, low);
    Value const distance = e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, from_low);
    Value const extra = FSub(distance, FMul(Floor(FDiv(distance, twice)), twice));
    Value const back = e_.ir().CreateFCmpOGE(extra, span);
    slope = Select(e_.ir().CreateXor(back, Less(from_low, Real(0))), e_.ir().CreateFNeg(slope), slope);
    Value const reflected = FAdd(Select(back, FSub(twice, extra), extra), low);
    return Select(e_.ir().CreateFCmpOGT(span, Real(0)), reflected, Real(0));
  }

  // An element at `position`, which is whole.
  AxisTap TapAt(Value position, Value size, Value weight, Value slope) {
    Value const near = FClamp(position, Real(-2), FAdd(FromInteger(size), Real(1)));
    Value const at = e_.Convert(near, real_, width_ == 1 ? Scalar::kI64 : Scalar::kI32);
    Value const count = Narrow(size, width_);
    return {at, e_.IsIndex(at, count), weight, slope};
  }

  // Keys' cubic convolution with a = -0.75 for distances up to 1, and from 1 to 2; and the derivatives.
  static constexpr double kA = -0.75;
  Value Polynomial(Value x, const std::array<double, 4>& c) {
    Value sum = Real(c[3]);
    for (size_t i = 3; i-- > 0;) sum = FAdd(FMul(sum, x), Real(c[i]));
    return sum;
  }
  Value Near(Value x) { return Polynomial(x, {1, 0, -(kA + 3), kA + 2}); }
  Value Far(Value x) { return Polynomial(x, {-4 * kA, 8 * kA, -5 * kA, kA}); }
  Value NearSlope(Value x) { return Polynomial(x, {0, -2 * (kA + 3), 3 * (kA + 2), 0}); }
  Value FarSlope(Value x) { return Polynomial(x, {8 * kA, -10 * kA, 3 * kA, 0}); }

  Axis CubicAxis(Value position, Value size, Value slope) {
    Value const base = Floor(position), t = FSub(position, base), rest = FSub(Real(1), t);
    Value const t1 = FAdd(t, Real(1)), rest1 = FAdd(rest, Real(1));
    const Values weights = {Far(t1), Near(t), Near(rest), Far(rest1)};
    const Values slopes = {FarSlope(t1), NearSlope(t), e_.ir().CreateFNeg(NearSlope(rest)),
                           e_.ir().CreateFNeg(FarSlope(rest1))};
    Axis axis = {.taps = {}, .slope = slope};
    for (size_t i = 0; i < 4; ++i) {
      Value ignored = Real(1);
      Value const at = Padded(FAdd(base, Real(static_cast<double>(i) - 1)), size, ignored);
      axis.taps.push_back(TapAt(at, size, weights[i], slopes[i]));
    }
    return axis;
  }

  Axis AxisOf(Value value, Value size) {
    Value slope = FMul(FSub(FromInteger(size), Real(key_.align_corners ? 1 : 0)), Real(0.5));
    Value position = Unnormalised(value, size);
    if (key_.mode == GridMode::kCubic) return CubicAxis(position, size, slope);
    position = Padded(position, size, slope);
    if (key_.mode == GridMode::kNearest) {
      Value const nearest = e_.ir().CreateUnaryIntrinsic(llvm::Intrinsic::rint, position);
      return {{TapAt(nearest, size, Real(1), Real(0))}, slope};
    }
    Value const base = Floor(position), part = FSub(position, base);
    return {
        {TapAt(base, size, FSub(Real(1), part), Real(-1)), TapAt(FAdd(base, Real(1)), size, part, Real(1))},
        slope};
  }

  // The elements around the sample at x .. x + width - 1 of a row, and the slopes of its positions.
  std::vector<Tap> TapsOf(const Row& row, Value x, int width, Values& slopes) {
    width_ = width;
    Value offset = e_.Mul(row.n, args_.grid_strides[0]);
    offset = e_.Add(offset, e_.Mul(row.z, args_.grid_strides[1]));
    offset = e_.Add(offset, e_.Mul(row.y, args_.grid_strides[2]));
    Value const steps = width == 1 ? x : Add(Narrow(x, width), Steps(width));
    std::vector<Tap> taps = {{nullptr, nullptr, nullptr, {}}};
    for (int d = 0; d < key_.spatial(); ++d) {
      Value const from = e_.Add(offset, e_.Mul(e_.I64(d), args_.grid_strides[4]));
      Value const value = LoadAt(key_.type, args_.grid, from, steps, args_.grid_strides[3], false, real_);
      const auto dimension = static_cast<size_t>(2 - d);  // x is the last
      const Axis axis = AxisOf(value, args_.in[dimension]);
      slopes.push_back(axis.slope);
      taps = Times(taps, axis, Narrow(PlaneStrides()[2 + dimension], width));
    }
    return taps;
  }

  // Of the tensor whose elements the taps are.
  const std::array<Emitted::Integer, 5>& PlaneStrides() const {
    return key_.part == GridPart::kInputGradient ? args_.result_strides : args_.input_strides;
  }

  std::vector<Tap> Times(const std::vector<Tap>& taps, const Axis& axis, Value stride) {
    std::vector<Tap> product;
    for (const AxisTap& along : axis.taps) {
      Value const offset = e_.ir().CreateMul(along.position, stride);
      for (const Tap& tap : taps) {
        Tap both = {offset, along.inside, along.weight, {}};
        if (tap.offset != nullptr) {
          both.offset = Add(tap.offset, offset);
          both.inside = e_.ir().CreateAnd(tap.inside, along.inside);
          both.weight = FMul(tap.weight, along.weight);
        }
        for (Value slope : tap.slopes) both.slopes.push_back(FMul(slope, along.weight));
        both.slopes.push_back(tap.offset == nullptr ? along.slope : FMul(tap.weight, along.slope));
        product.push_back(both);
      }
    }
    for (Tap& tap : product) {
      tap.offset = Select(tap.inside, tap.offset, Zero(tap.offset));
      if (!key_.volumes) continue;
      // As in ATen, a position that is no number gives 0 in a volume, and NaN in a plane.
      tap.weight = Select(tap.inside, tap.weight, Real(0));
      for (Value& slope : tap.slopes) slope = Select(tap.inside, slope, Real(0));
    }
    return product;
  }

  // ---- samples

  Value PlaneOf(const std::array<Emitted::Integer, 5>& strides, Value n, Value channel) {
    return e_.Add(e_.Mul(n, strides[0]), e_.Mul(channel, strides[1]));
  }
  Value InPlane(const std::array<Emitted::Integer, 5>& strides, const Row& row, Value x) {
    return e_.Add(e_.Add(e_.Mul(row.z, strides[2]), e_.Mul(row.y, strides[3])), e_.Mul(x, strides[4]));
  }

  // The element at a tap, or 0 outside.
  Value ElementAt(Value plane, const Tap& tap) {
    Value const element = LoadAt(key_.type, args_.input, plane, tap.offset, e_.I64(1), true, real_);
    return Select(tap.inside, element, Zero(element));
  }

  void EmitSample(const Row& row, Value x, int width) {
    Values slopes;
    const std::vector<Tap> taps = TapsOf(row, x, width, slopes);
    if (key_.part == GridPart::kGridGradient) return EmitGridGradient(row, x, taps, slopes);
    e_.Loop(e_.I64(0), args_.channels, e_.I64(1), [&](Value channel) {
      Value const plane = PlaneOf(args_.input_strides, row.n, channel);
      Value sum = Real(0);
      for (const Tap& tap : taps) sum = FAdd(sum, FMul(ElementAt(plane, tap), tap.weight));
      Value const at =
          e_.Add(PlaneOf(args_.result_strides, row.n, channel), InPlane(args_.result_strides, row, x));
      e_.Store(key_.type, args_.result, at, sum, real_, width);
    });
  }

  Value GradientAt(const Row& row, Value x, Value channel) {
    Value const at =
        e_.Add(PlaneOf(args_.gradient_strides, row.n, channel), InPlane(args_.gradient_strides, row, x));
    return e_.Load(key_.type, args_.gradient, at, real_);
  }

  void EmitGridGradient(const Row& row, Value x, const std::vector<Tap>& taps, const Values& slopes) {
    const Values zeros(slopes.size(), Real(0));
    const Values sums =
        e_.Loop(e_.I64(0), args_.channels, e_.I64(1), zeros, [&](Value channel, const Values& current) {
          Value const plane = PlaneOf(args_.input_strides, row.n, channel);
          Value const gradient = GradientAt(row, x, channel);
          Values next = current;
          for (const Tap& tap : taps) {
            Value const element = FMul(ElementAt(plane, tap), gradient);
            for (size_t d = 0; d < next.size(); ++d) next[d] = FAdd(next[d], FMul(element, tap.slopes[d]));
          }
          return next;
        });
    const auto& strides = args_.result_strides;
    Value at = e_.Add(e_.Mul(row.n, strides[0]), e_.Mul(row.z, strides[1]));
    at = e_.Add(at, e_.Add(e_.Mul(row.y, strides[2]), e_.Mul(x, strides[3])));
    for (size_t d = 0; d < sums.size(); ++d) {
      Value const to = e_.Add(at, e_.Mul(e_.I64(static_cast<int64_t>(d)), strides[4]));
      e_.Store(key_.type, args_.result, to, FMul(sums[d], slopes[d]), real_);
    }
  }

  // ---- gradients of planes: all samples of some channels, in order

  void EmitPlanes(Value unit) {
    Value const slices = e_.CeilDiv(args_.channels, args_.channel_slice);
    Value const n = e_.ir().CreateUDiv(unit, slices);
    Value const begin = e_.Mul(e_.ir().CreateURem(unit, slices), args_.channel_slice);
    Value const end = Min(e_.Add(begin, args_.channel_slice), args_.channels);
    const auto over = [&](Value size, const std::function<void(Value)>& body) {
      e_.Loop(e_.I64(0), size, e_.I64(1), body);
    };
    over(args_.out[0], [&](Value z) {
      over(args_.out[1], [&](Value y) {
        over(args_.out[2], [&](Value x) {
          const Row row = {n, z, y};
          Values slopes;
          const std::vector<Tap> taps = TapsOf(row, x, 1, slopes);
          e_.Loop(begin, end, e_.I64(1), [&](Value channel) { AddGradient(row, x, channel, taps); });
        });
      });
    });
  }

  void AddGradient(const Row& row, Value x, Value channel, const std::vector<Tap>& taps) {
    Value const gradient = GradientAt(row, x, channel);
    Value const plane = PlaneOf(args_.result_strides, row.n, channel);
    for (const Tap& tap : taps) {
      e_.If(tap.inside, [&] {
        Value const at = e_.Add(plane, tap.offset);
        Value const sum = FAdd(e_.Load(key_.type, args_.result, at, real_), FMul(gradient, tap.weight));
        e_.Store(key_.type, args_.result, at, sum, real_);
      });
    }
  }

  const GridSampleKey& key_;
  const GridSampleArguments<Emitted>& args_;
  Emitter& e_;
  const Scalar real_;
  int width_ = 1;  // of the reals
};

}  // namespace

absl::Status GridSampleSkeleton::EmitBody(const GridSampleKey& key,
                                          const GridSampleArguments<Emitted>& arguments, Emitter& e) const {
  GridSampleEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kGridSamplePlanner = MakePlanner<GridSamplePlanner>;
constinit const PlannerFactory kGridSampleBackwardPlanner = MakePlanner<GridSamplePlanner>;

}  // namespace xpud::kernels
