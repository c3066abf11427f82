#include "kernels/families/unfold.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "kernels/families/window_emission.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

// The last strides of an operand; an operand without a batch has stride 0 there.
template <size_t kRank>
std::array<int64_t, kRank> StridesOf(const Operand& operand) {
  std::array<int64_t, kRank> strides{};
  const size_t missing = kRank - operand.rank;
  for (size_t d = missing; d < kRank; ++d) strides[d] = operand.strides[d - missing];
  return strides;
}

// Vectors compute positions in i32.
bool FitsVectors(const ops::Window& w) {
  return static_cast<double>(w.in) + static_cast<double>(w.padding) +
             static_cast<double>(w.kernel) * static_cast<double>(w.dilation) <
         0x1p30;
}

}  // namespace

absl::StatusOr<Readiness> UnfoldPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  ASSIGN_OR_RETURN(const ops::UnfoldSpec spec, ops::UnfoldOf(call));
  if (spec.batch == 0) return Readiness::kReady;
  const ops::Window &h = spec.windows[0], &w = spec.windows[1];
  const bool gpu = cache_.target() != Target::kHost;
  UnfoldKey key;
  key.folds = call.row->family == ops::Family::kFold;
  const Operand &image = key.folds ? *spec.out : *spec.self, &columns = key.folds ? *spec.self : *spec.out;
  UnfoldArguments<Planned> arguments;
  arguments.image_strides = StridesOf<4>(image);
  arguments.columns_strides = StridesOf<3>(columns);
  key.type = key.folds ? image.dtype : BitsOf(ops::SizeOf(image.dtype));
  key.steps = w.stride != 1;
  key.adjacent = {arguments.image_strides[3] == 1, arguments.columns_strides[2] == 1};
  key.vector = !gpu && key.folds && key.adjacent[0] && w.in >= kGatherWidth && FitsVectors(w);
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  arguments.image = image.data;
  arguments.columns = columns.data;
  for (size_t d = 0; d < 2; ++d) {
    const ops::Window& window = spec.windows[d];
    arguments.in[d] = window.in;
    arguments.out[d] = window.out;
    arguments.kernel[d] = window.kernel;
    arguments.dilation[d] = window.dilation;
    arguments.padding[d] = window.padding;
    arguments.stride[d] = window.stride;
  }
  arguments.channels = spec.channels;
  const int64_t rows = spec.batch * (key.folds ? spec.channels * h.in : spec.columns * h.out);
  const int64_t row = key.folds ? w.in : w.out;
  const float nanoseconds =
      key.folds ? static_cast<float>(h.kernel) * static_cast<float>(w.kernel) * (key.vector ? 0.5f : 2.0f)
                : 0.3f;
  arguments.count = gpu ? rows * row : rows;
  arguments.slice = gpu ? kGpuLanes : SliceOf(rows, 5 + static_cast<float>(row) * nanoseconds, 1);
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(arguments.count, arguments.slice));
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

class UnfoldEmission : WindowEmission {
 public:
  UnfoldEmission(const UnfoldKey& key, const UnfoldArguments<Emitted>& arguments, Emitter& emitter)
      : WindowEmission(emitter),
        key_(key),
        args_(arguments),
        e_(emitter),
        scalar_(key.folds ? AccumulateOf(key.type) : ScalarOf(key.type)) {}

  void Run() {
    Value const begin = e_.Mul(e_.Group(0), args_.slice);
    Value const end = Min(e_.Add(begin, args_.slice), args_.count);
    e_.Loop(e_.Add(begin, e_.Lane()), end, e_.Lanes(), [&](Value item) {
      Value const x = e_.gpu() ? Digit(item, key_.folds ? args_.in[1] : args_.out[1]) : nullptr;
      key_.folds ? FoldRow(item, x) : UnfoldRow(item, x);
    });
  }

 private:
  // Returns the last digit of `number`, and takes it away.
  Value Digit(Value& number, Value size) {
    Value const digit = e_.ir().CreateURem(number, size);
    number = e_.ir().CreateUDiv(number, size);
    return digit;
  }

  // ---- unfold

  // Where a row of columns is: offsets of the operands' rows, and the image's column of the row's start.
  struct Row {
    Value image, columns, first;
  };

  // Writes row number `item`, or its element `x` (GPU).
  void UnfoldRow(Value item, Value x) {
    Value rest = item;
    Value const y = Digit(rest, args_.out[0]);
    Value const column = Digit(rest, e_.Mul(args_.channels, e_.Mul(args_.kernel[0], args_.kernel[1])));
    Value channel = column;
    Value const kx = Digit(channel, args_.kernel[1]), ky = Digit(channel, args_.kernel[0]);
    Value const from =
        Sub(e_.Add(e_.Mul(y, args_.stride[0]), e_.Mul(ky, args_.dilation[0])), args_.padding[0]);
    Value const inside = e_.ir().CreateICmpULT(from, args_.in[0]);
    Value const image_y = e_.ir().CreateSelect(inside, from, e_.I64(0));
    const Row row = {Offset(args_.image_strides, {rest, channel, image_y}),
                     Offset(args_.columns_strides, {rest, column, e_.Mul(y, args_.out[1])}),
                     Sub(e_.Mul(kx, args_.dilation[1]), args_.padding[1])};
    // Elements begin .. end - 1 lie in the image.
    Value const size = args_.out[1], step = args_.stride[1];
    Value const begin = Min(DivideUp(Sub(e_.I64(0), row.first), step), size);
    Value const stop = Min(DivideUp(Max(Sub(args_.in[1], row.first), e_.I64(0)), step), size);
    Value const end = e_.ir().CreateSelect(inside, Max(stop, begin), begin);
    if (x != nullptr) return UnfoldElement(row, x, begin, end);
    const auto zeros = [&](Value at) { StoreColumn(row, at, e_.IntegerConstant(scalar_, 0)); };
    e_.Loop(e_.I64(0), begin, e_.I64(1), zeros, Emitter::LoopKind::kParallel);
    e_.Loop(
        begin, end, e_.I64(1), [&](Value at) { StoreColumn(row, at, LoadPixel(row, at)); },
        Emitter::LoopKind::kParallel);
    e_.Loop(end, size, e_.I64(1), zeros, Emitter::LoopKind::kParallel);
  }

  void UnfoldElement(const Row& row, Value x, Value begin, Value end) {
    auto& ir = e_.ir();
    Value const inside = ir.CreateAnd(ir.CreateICmpSGE(x, begin), ir.CreateICmpSLT(x, end));
    StoreColumn(row, x, e_.IntegerConstant(scalar_, 0));
    e_.If(inside, [&] { StoreColumn(row, x, LoadPixel(row, x)); });
  }

  template <size_t kRank>
  Value Offset(const std::array<Emitted::Integer, kRank>& strides, const Values& at) {
    Value offset = e_.I64(0);
    for (size_t d = 0; d < at.size(); ++d) offset = e_.Add(offset, e_.Mul(at[d], strides[d]));
    return offset;
  }
  Value Along(Value position, Value stride, bool adjacent) {
    return adjacent ? position : e_.Mul(position, stride);
  }
  Value LoadPixel(const Row& row, Value at) {
    Value const x = e_.Add(key_.steps ? e_.Mul(at, args_.stride[1]) : at, row.first);
    return e_.Load(key_.type, args_.image,
                   e_.Add(row.image, Along(x, args_.image_strides[3], key_.adjacent[0])), scalar_);
  }
  void StoreColumn(const Row& row, Value at, Value value) {
    e_.Store(key_.type, args_.columns,
             e_.Add(row.columns, Along(at, args_.columns_strides[2], key_.adjacent[1])), value, scalar_);
  }

  // ---- fold

  // Writes row number `item` of an image, or its element `x` (GPU).
  void FoldRow(Value item, Value x) {
    Value rest = item;
    Value const y = Digit(rest, args_.in[0]), channel = Digit(rest, args_.channels);
    Value const row = Offset(args_.image_strides, {rest, channel, y});
    Value const kernel = e_.Mul(args_.kernel[0], args_.kernel[1]);
    Value const columns = Offset(args_.columns_strides, {rest, e_.Mul(channel, kernel)});
    const auto fold = [&](Value at, int width) {
      Value const sum = SumOf(columns, y, at, width);
      Value const to = e_.Add(row, Along(at, args_.image_strides[3], key_.adjacent[0]));
      e_.Store(key_.type, args_.image, to, Finished(sum),
               key_.type == ops::DType::kBool ? Scalar::kBool : scalar_, width);
    };
    if (x != nullptr) return fold(x, 1);
    Value next = e_.I64(0);
    if (key_.vector) {
      Value const whole = e_.ir().CreateAnd(args_.in[1], e_.I64(-int64_t{kGatherWidth}));
      e_.Loop(next, whole, e_.I64(kGatherWidth), [&](Value at) { fold(at, kGatherWidth); });
      next = whole;
    }
    e_.Loop(next, args_.in[1], e_.I64(1), [&](Value at) { fold(at, 1); });
  }

  Value Finished(Value sum) {
    return key_.type == ops::DType::kBool ? e_.ir().CreateICmpNE(sum, Zero(sum)) : sum;
  }

  // The window whose element `at` - kernel element is, and whether there is one.
  struct Covering {
    Value window, exists;
  };
  Covering CoveringOf(Value at, size_t d, int width, bool steps) {
    auto& ir = e_.ir();
    Value const stride = Narrow(args_.stride[d], width), limit = Narrow(args_.out[d], width);
    Value const window = steps ? Divide(at, stride) : at;
    Value exists = ir.CreateAnd(ir.CreateICmpSGE(at, Zero(at)), ir.CreateICmpSLT(window, limit));
    if (steps) exists = ir.CreateAnd(exists, ir.CreateICmpEQ(ir.CreateMul(window, stride), at));
    return {ir.CreateSelect(exists, window, Zero(window)), exists};
  }

  // The sums at x .. x + width - 1 of row y; `columns` is the offset of the channel's first column.
  Value SumOf(Value columns, Value y, Value x, int width) {
    Value const first = width == 1 ? x : Add(Narrow(x, width), Steps(width));
    Value const zero = llvm::Constant::getNullValue(e_.TypeOf(scalar_, width));
    return e_.Loop(e_.I64(0), args_.kernel[0], e_.I64(1), {zero}, [&](Value ky, const Values& outer) {
      Value const top = Sub(e_.Add(y, args_.padding[0]), e_.Mul(ky, args_.dilation[0]));
      const Covering row = CoveringOf(top, 0, 1, /*steps=*/true);
      Value const start = e_.Add(columns, e_.Mul(e_.Mul(row.window, args_.out[1]), args_.columns_strides[2]));
      Value const taps = e_.ir().CreateSelect(row.exists, args_.kernel[1], e_.I64(0));
      return e_.Loop(e_.I64(0), taps, e_.I64(1), outer, [&](Value kx, const Values& sum) {
        Value const shift = Sub(args_.padding[1], e_.Mul(kx, args_.dilation[1]));
        const Covering at = CoveringOf(Add(first, Narrow(shift, width)), 1, width, key_.steps);
        Value const column = e_.Add(e_.Mul(ky, args_.kernel[1]), kx);
        Value const base = e_.Add(start, e_.Mul(column, args_.columns_strides[1]));
        Value const element = LoadAt(key_.type, args_.columns, base, at.window, args_.columns_strides[2],
                                     key_.adjacent[1], scalar_);
        return Values{Sum(sum[0], e_.ir().CreateSelect(at.exists, element, zero))};
      });
    })[0];
  }
  Value Sum(Value a, Value b) { return IsFloat(scalar_) ? e_.ir().CreateFAdd(a, b) : Add(a, b); }

  const UnfoldKey& key_;
  const UnfoldArguments<Emitted>& args_;
  Emitter& e_;
  const Scalar scalar_;
};

}  // namespace

absl::Status UnfoldSkeleton::EmitBody(const UnfoldKey& key, const UnfoldArguments<Emitted>& arguments,
                                      Emitter& e) const {
  UnfoldEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kUnfoldPlanner = MakePlanner<UnfoldPlanner>;
constinit const PlannerFactory kFoldPlanner = MakePlanner<UnfoldPlanner>;

}  // namespace xpud::kernels
