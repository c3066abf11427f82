#include "kernels/families/resample.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/resample.h"

namespace xpud::kernels {

namespace {

constexpr int kUnrolledTaps = 4;
constexpr size_t kAlignment = 256;

size_t AlignUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns a tensor without gaps whose dimensions have the order in memory of `like`.
Operand DenseLike(const Operand& like, const Operand& sizes, ops::DType type) {
  std::array<size_t, ops::kMaxRank> order{};
  for (size_t d = 0; d < like.rank; ++d) order[d] = d;
  std::sort(order.begin(), order.begin() + like.rank, [&](size_t a, size_t b) {
    return like.strides[a] != like.strides[b] ? like.strides[a] > like.strides[b] : a < b;
  });
  Operand dense = sizes;
  dense.dtype = type;
  int64_t stride = 1;
  for (size_t i = like.rank; i-- > 0;) {
    dense.strides[order[i]] = stride;
    stride *= sizes.sizes[order[i]];
  }
  return dense;
}

// Returns the map's spatial dimensions that are not copied, the one that shrinks the tensor most first.
std::vector<size_t> OrderOf(const ops::ResampleSpec& spec) {
  std::vector<size_t> order;
  for (auto d = static_cast<size_t>(spec.spatial); d-- > 0;) {
    if (!IsIdentity(spec, spec.windows[d])) order.push_back(d);
  }
  if (order.empty()) order.push_back(static_cast<size_t>(spec.spatial - 1));
  const auto growth = [&](size_t d) {
    const ops::Window& w = spec.windows[d];
    const auto in = static_cast<double>(std::max<int64_t>(w.in, 1));
    const auto out = static_cast<double>(std::max<int64_t>(w.out, 1));
    return spec.transposed ? in / out : out / in;
  };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return growth(a) != growth(b) ? growth(a) < growth(b) : a > b; });
  return order;
}

Launch& Begin(LaunchList& launches, const Kernel* kernel, int64_t groups, bool gpu) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, groups);
  if (gpu) launch.group_size = {kGpuLanes, 1, 1};
  return launch;
}

}  // namespace

struct ResamplePlanner::Pass {
  Pass(const ops::ResampleSpec& spec, const ops::Window& along, const Operand& from, const Operand& to,
       size_t d)
      : window(along),
        reach(ReachOf(spec, along)),
        support(SupportOf(spec, along)),
        in(from),
        out(to),
        dim(d),
        taps(TapsOf(spec, along)),
        rows(to.sizes[d]) {}

  void SetKeys(const ops::ResampleSpec& spec, Scalar real, bool gpu);
  size_t positions_bytes() const { return AlignUp(static_cast<size_t>(taps * rows) * sizeof(int32_t)); }
  size_t weights_bytes() const { return AlignUp(static_cast<size_t>(taps * rows) * sizeof(double)); }

  ops::Window window;
  ops::Reach reach;
  double support = 1;
  Operand in, out;
  size_t dim = 0;
  int64_t taps = 1, rows = 1;
  Layout items;
  ResampleTableKey table_key;
  ResamplePassKey key;
  const Kernel *table = nullptr, *pass = nullptr;
  std::byte *positions = nullptr, *weights = nullptr;
};

void ResamplePlanner::Pass::SetKeys(const ops::ResampleSpec& spec, Scalar real, bool gpu) {
  table_key = {.kind = spec.kind,
               .real = real,
               .transposed = spec.transposed,
               .half_pixel = spec.half_pixel,
               .include_padding = spec.include_padding};
  Operand shape = out, from = in;
  shape.sizes[dim] = from.sizes[dim] = 1;
  items = Layout::Over(shape);
  items.AddOperand(shape);
  items.AddOperand(from);
  items.Collapse(/*may_permute=*/true);
  key.copies = CopiesElements(spec);
  key.input = key.copies ? BitsOf(ops::SizeOf(in.dtype)) : in.dtype;
  key.output = key.copies ? key.input : out.dtype;
  key.real = key.copies ? ScalarOf(key.input) : real;
  key.adjacent = in.strides[dim] == 1;
  const bool contiguous =
      items.AccessOf(0) == Access::kContiguous && items.AccessOf(1) == Access::kContiguous;
  if (contiguous && items.inner() >= (gpu ? 2 : 8)) {
    key.form = PassForm::kItems;
  } else if (out.strides[dim] == 1 && !gpu) {
    key.form = PassForm::kOutputs;
  }
  key.taps = taps <= kUnrolledTaps ? static_cast<int>(taps) : 0;
  key.rank = items.rank;
}

absl::StatusOr<bool> ResamplePlanner::FindKernels(Pass& pass) {
  ASSIGN_OR_RETURN(pass.table, cache_.Find(table_, pass.table_key));
  ASSIGN_OR_RETURN(pass.pass, cache_.Find(pass_, pass.key));
  return pass.table != nullptr && pass.pass != nullptr;
}

absl::StatusOr<Readiness> ResamplePlanner::Plan(const OpCall& call, Workspace workspace,
                                                LaunchList& launches) {
  const auto resample = ops::Read<ops::ResampleCall>(call);
  const Operand &out = *resample.out, &self = *resample.self;
  ASSIGN_OR_RETURN(const ops::ResampleSpec spec, ops::ResampleOf(call));
  for (int d = 0; d < out.rank; ++d)
    if (out.sizes[d] == 0) return Readiness::kReady;
  const bool gpu = cache_.target() != Target::kHost;
  const Scalar real = AccumulateOf(self.dtype) == Scalar::kF64 ? Scalar::kF64 : Scalar::kF32;
  const std::vector<size_t> order = OrderOf(spec);
  std::vector<Pass> passes;
  std::vector<size_t> temporaries;  // bytes
  Operand from = self;
  bool ready = true;
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t dim = out.rank - static_cast<size_t>(spec.spatial) + order[i];
    Operand to = from;
    to.sizes[dim] = out.sizes[dim];
    if (i + 1 == order.size()) {
      to = out;
    } else {
      to = DenseLike(out, to, CopiesElements(spec) ? self.dtype : TypeOfReal(real));
      temporaries.push_back(AlignUp(static_cast<size_t>(to.numel()) * ops::SizeOf(to.dtype)));
    }
    Pass& pass = passes.emplace_back(spec, spec.windows[order[i]], from, to, dim);
    pass.SetKeys(spec, real, gpu);
    ASSIGN_OR_RETURN(const bool found, FindKernels(pass));
    ready &= found;
    from = to;
  }
  if (!ready) return Readiness::kCompiling;
  size_t bytes = 0;
  for (const size_t each : temporaries) bytes += each;
  for (const Pass& pass : passes) bytes += pass.positions_bytes() + pass.weights_bytes();
  ASSIGN_OR_RETURN(void* const memory, workspace(bytes));
  auto* next = static_cast<std::byte*>(memory);
  for (size_t i = 0; i < passes.size(); ++i) {
    Pass& pass = passes[i];
    pass.positions = next;
    pass.weights = next + pass.positions_bytes();
    next = pass.weights + pass.weights_bytes();
    if (i < temporaries.size()) {
      pass.out.data = passes[i + 1].in.data = next;
      next += temporaries[i];
    }
    AddLaunches(pass, launches);
  }
  return Readiness::kReady;
}

void ResamplePlanner::AddLaunches(const Pass& pass, LaunchList& launches) {
  const bool gpu = cache_.target() != Target::kHost;
  constexpr float kTapNanoseconds = 4, kElementNanoseconds = 0.2f, kGatheredNanoseconds = 1;
  const auto taps = static_cast<float>(pass.taps);
  const auto number = [](double value) { return ops::Number::Real(value); };
  // A table of all outputs for each element needs no lower bound.
  const double inverse = pass.taps >= pass.window.out ? 0 : 1 / pass.window.scale;
  const ops::Number scale = number(pass.window.scale), support = number(pass.support),
                    reciprocal = number(inverse), low = number(pass.reach.low),
                    shift = number(pass.reach.shift);
  const int64_t table_slice = gpu ? kGpuLanes : SliceOf(pass.rows, kTapNanoseconds * taps, 1);
  ResampleTableArguments<Planned> table{.positions = pass.positions,
                                        .weights = pass.weights,
                                        .in = pass.window.in,
                                        .out = pass.window.out,
                                        .kernel = pass.window.kernel,
                                        .stride = pass.window.stride,
                                        .padding = pass.window.padding,
                                        .taps = pass.taps,
                                        .slice = table_slice,
                                        .margin = 1 + (pass.window.out >> 22),
                                        .scale = &scale,
                                        .support = &support,
                                        .inverse = &reciprocal,
                                        .low = &low,
                                        .shift = &shift};
  PushArguments(pass.table_key, table, Begin(launches, pass.table, CeilDiv(pass.rows, table_slice), gpu));

  const int64_t elements = pass.items.numel() * pass.rows;
  const bool items = pass.key.form == PassForm::kItems;
  const int64_t of_unit = items ? pass.items.inner() : pass.rows;
  const float nanoseconds =
      static_cast<float>(of_unit) * taps * (items ? kElementNanoseconds : kGatheredNanoseconds);
  ResamplePassArguments<Planned> arguments;
  arguments.out = pass.out.data;
  arguments.in = pass.in.data;
  arguments.positions = pass.positions;
  arguments.weights = pass.weights;
  SetSpace(pass.items, arguments.items);
  arguments.out_stride = pass.out.strides[pass.dim];
  arguments.in_stride = pass.in.strides[pass.dim];
  arguments.rows = pass.rows;
  arguments.taps = pass.taps;
  arguments.count = gpu ? elements : elements / of_unit;
  arguments.slice = gpu ? kGpuLanes : SliceOf(arguments.count, nanoseconds, 1);
  PushArguments(pass.key, arguments,
                Begin(launches, pass.pass, CeilDiv(arguments.count, arguments.slice), gpu));
}

constinit const PlannerFactory kResamplePlanner = MakePlanner<ResamplePlanner>;

}  // namespace xpud::kernels
