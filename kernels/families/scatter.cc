#include "kernels/families/scatter.h"

#include <algorithm>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/scatter.h"
#include "proto/ops/families/scatter_add.h"

namespace xpud::kernels {

namespace {

// Each range goes through the whole index. With few lines there are more ranges, because lanes of a warp wait
// for each other's elements.
constexpr int64_t kManyRanges = 64;
constexpr int64_t kGpuThreads = 128 * 1024;  // enough to fill a device
constexpr int64_t kFewThreads = 16 * 1024;
constexpr int64_t kLongIndex = 512;  // from here on, sorting the index pays (GPU)
constexpr int64_t kMinColumns = 8;   // fewer neighbouring lines are taken one by one

}  // namespace

// A call, as a row of family kScatter.
struct ScatterPlanner::Scatter {
  const ops::Row& row;
  const Operand &out, &index, &source;
  size_t dim;
  uint64_t* error_word;
  bool any_order = false;
  int64_t padding = -1;
};

// The lines of a call, and what a line has. Operands: out, index, and the source if it is a tensor; elements
// have one before them, which only orders the dimensions.
struct ScatterPlanner::Lines {
  Layout layout;
  size_t first = 0;                  // of these operands
  std::array<int64_t, 3> strides{};  // along the dimension
  int64_t rows = 1, length = 1;
};

namespace {

using Lines = ScatterPlanner::Lines;

Lines LinesOf(const ScatterPlanner::Scatter& scatter) {
  const Operand &index = scatter.index, &source = scatter.source;
  const size_t dim = scatter.dim;
  Operand shape = index, out = scatter.out;
  shape.sizes[dim] = 1;
  out.sizes = shape.sizes;
  Lines lines;
  lines.rows = scatter.out.sizes[dim];
  lines.length = index.sizes[dim];
  lines.layout = Layout::Over(shape);
  lines.layout.AddOperand(out);
  lines.layout.AddOperand(index);
  if (!source.immediate) lines.layout.AddOperand(source);
  lines.strides = {out.strides[dim], index.strides[dim], source.strides[dim]};
  return lines;
}

ScatterKey KeyFor(const ScatterPlanner::Scatter& scatter, const Lines& lines, bool gpu) {
  const Layout& layout = lines.layout;
  ScatterKey key;
  key.row = &scatter.row;
  key.type = scatter.out.dtype;
  key.index = scatter.index.dtype;
  key.immediate = scatter.source.immediate;
  key.source = key.immediate ? key.type : scatter.source.dtype;
  key.rank = layout.rank;
  key.columns = !gpu && layout.AccessOf(0) == Access::kContiguous && layout.inner() >= kMinColumns;
  if (!key.columns) return key;
  key.contiguous = key.immediate || layout.AccessOf(2) == Access::kContiguous;
  key.shared = layout.AccessOf(1) == Access::kBroadcast;
  return key;
}

struct Cut {
  int64_t pieces = 1, piece_slice = 1, column_slice = 1, ranges = 1, row_slice = 1;
};

Cut GpuCut(const Lines& lines) {
  Cut cut;
  cut.pieces = lines.layout.numel();
  const int64_t rows = std::max<int64_t>(lines.rows, 1);
  const int64_t wanted = std::max(std::min(kGpuThreads / cut.pieces, kManyRanges), kFewThreads / cut.pieces);
  cut.ranges = std::clamp<int64_t>(wanted, 1, rows);
  cut.row_slice = CeilDiv(rows, cut.ranges);
  cut.ranges = CeilDiv(rows, cut.row_slice);
  return cut;
}

// Cuts columns first. If there are few columns, cuts ranges too, as long as reading the index stays cheap
// compared with the rest.
Cut HostCut(const ScatterKey& key, const Lines& lines) {
  Cut cut;
  cut.row_slice = std::max<int64_t>(lines.rows, 1);
  const auto element = static_cast<float>(ops::SizeOf(key.type));
  const auto length = static_cast<float>(lines.length);
  if (!key.columns) {
    cut.pieces = lines.layout.numel();
    cut.piece_slice = SliceOf(cut.pieces, 1.5f * length, 1);
    return cut;
  }
  const float nanoseconds = key.shared ? 2.0f * element / kBytesPerNanosecond + 0.02f : 1.0f;
  const int64_t inner = lines.layout.inner();
  const int64_t wanted = std::clamp<int64_t>(
      static_cast<int64_t>(length * static_cast<float>(inner) * nanoseconds / kSliceNanoseconds), 1, 8);
  const auto line = static_cast<int64_t>(64 / ops::SizeOf(key.type));
  cut.column_slice = std::min(inner, std::max(CeilDiv(CeilDiv(inner, wanted), line), int64_t{4}) * line);
  const int64_t slices = CeilDiv(inner, cut.column_slice);
  const int64_t most = key.shared ? std::min(lines.rows, std::max<int64_t>(cut.column_slice / 16, 1)) : 1;
  cut.ranges = std::clamp<int64_t>(wanted / slices, 1, std::max<int64_t>(most, 1));
  cut.row_slice = CeilDiv(cut.row_slice, cut.ranges);
  cut.ranges = CeilDiv(std::max<int64_t>(lines.rows, 1), cut.row_slice);
  cut.pieces = lines.layout.numel() / inner * slices;
  cut.piece_slice = SliceOf(cut.pieces, length * static_cast<float>(cut.column_slice) * nanoseconds, 1);
  return cut;
}

// The elements of the index as lines of one element each.
Lines ElementsOf(const ScatterPlanner::Scatter& scatter) {
  const Operand &index = scatter.index, &source = scatter.source;
  const size_t dim = scatter.dim;
  Operand out = scatter.out;
  Lines lines;
  lines.rows = out.sizes[dim];
  lines.strides = {out.strides[dim], 0, 0};
  out.sizes = index.sizes;
  lines.layout = Layout::Over(index);
  lines.layout.AddOperand(out);  // neighbours in out are neighbours in the order, whatever is indexed
  lines.first = 1;
  out.strides[dim] = 0;
  lines.layout.AddOperand(out);
  lines.layout.AddOperand(index);
  if (!source.immediate) lines.layout.AddOperand(source);
  return lines;
}

// Returns true if atomic operations give the same result in any order.
bool OrderIsIrrelevant(const ops::Row& row, ops::DType type) {
  return row.formula.starts_with("max") || row.formula.starts_with("min") ||
         (row.formula != "b" && !ops::IsFloating(type));
}

bool IsAtomic(ops::DType type) { return ops::SizeOf(type) >= 4; }

// Cuts the innermost dimension into blocks, if a lane can add them at once.
bool TakeBlocks(const ScatterPlanner::Scatter& scatter, Lines& lines) {
  constexpr int64_t kBlock = ScatterKey::kBlock;
  const Operand &out = scatter.out, &source = scatter.source;
  Layout& layout = lines.layout;
  const auto last = static_cast<size_t>(layout.rank - 1);
  const auto is_aligned = [&](const Operand& operand) {
    return reinterpret_cast<uintptr_t>(operand.data) % (kBlock * sizeof(float)) == 0;
  };
  if (scatter.row.formula != "a + b" || out.dtype != ops::DType::kFloat32 || source.dtype != out.dtype ||
      source.immediate || !is_aligned(out) || !is_aligned(source))
    return false;
  auto &to = layout.strides[1], &index = layout.strides[2], &from = layout.strides[3];
  if (layout.sizes[last] % kBlock != 0 || to[last] != 1 || index[last] != 0 || from[last] != 1 ||
      lines.strides[0] % kBlock != 0)
    return false;
  for (size_t d = 0; d < last; ++d)
    if (to[d] % kBlock != 0 || from[d] % kBlock != 0) return false;
  layout.sizes[last] /= kBlock;
  to[last] = from[last] = kBlock;
  return true;
}

// Returns true if all lines have the same index.
bool SharesIndex(const Operand& index, size_t dim) {
  for (size_t d = 0; d < static_cast<size_t>(index.rank); ++d)
    if (d != dim && index.sizes[d] > 1 && index.strides[d] != 0) return false;
  return true;
}

ScatterArguments<Planned> ArgumentsFor(const ScatterPlanner::Scatter& scatter, const Lines& lines,
                                       const Cut& cut) {
  ScatterArguments<Planned> arguments{};
  arguments.out = scatter.out.data;
  arguments.index = scatter.index.data;
  arguments.source = scatter.source.data;
  arguments.error_word = scatter.error_word;
  arguments.value = &scatter.source.number;
  arguments.out_stride = lines.strides[0];
  arguments.index_stride = lines.strides[1];
  arguments.source_stride = lines.strides[2];
  arguments.rows = lines.rows;
  arguments.length = lines.length;
  arguments.padding = scatter.padding;
  arguments.pieces = cut.pieces;
  arguments.piece_slice = cut.piece_slice;
  arguments.column_slice = cut.column_slice;
  arguments.row_slice = cut.row_slice;
  SetSpace(lines.layout, arguments.lines, lines.first);
  return arguments;
}

void LaunchLanes(const Kernel* kernel, const ScatterKey& key, int64_t lanes,
                 ScatterArguments<Planned>& arguments, LaunchList& launches) {
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(lanes, kGpuLanes));
  launch.group_size = {kGpuLanes, 1, 1};
  PushArguments(key, arguments, launch);
}

// The row of family kScatter that has the same formula.
const ops::Row& InOrder(const ops::Row& row) {
  const auto found = std::ranges::find_if(ops::kRows, [&](const ops::Row& other) {
    return other.family == ops::Family::kScatter && other.formula == row.formula;
  });
  return *found;
}

}  // namespace

absl::StatusOr<Readiness> ScatterPlanner::Plan(const OpCall& call, Workspace workspace,
                                               LaunchList& launches) {
  static const ops::Row& add = ops::RowOf("xpud::scatter_add");
  if (call.row->family == ops::Family::kScatterAdd) {  // of rows: one index serves all columns
    const auto rows = ops::Read<ops::ScatterAddCall>(call);
    Operand index = *rows.index;
    index.rank = 2;
    index.sizes[1] = rows.source->sizes[1];
    index.strides[1] = 0;
    return PlanScatter({.row = add,
                        .out = *rows.out,
                        .index = index,
                        .source = *rows.source,
                        .dim = 0,
                        .error_word = call.error_word,
                        .padding = rows.padding_idx},
                       workspace, launches);
  }
  const auto scatter = ops::Read<ops::ScatterCall>(call);
  const bool any_order = call.row->family == ops::Family::kScatterAnyOrder;
  return PlanScatter({.row = any_order ? InOrder(*call.row) : *call.row,
                      .out = *scatter.out,
                      .index = *scatter.index,
                      .source = *scatter.source,
                      .dim = static_cast<size_t>(scatter.dim),
                      .error_word = call.error_word,
                      .any_order = any_order},
                     workspace, launches);
}

absl::StatusOr<Readiness> ScatterPlanner::PlanScatter(const Scatter& scatter, Workspace workspace,
                                                      LaunchList& launches) {
  const ops::DType type = scatter.out.dtype;
  const bool gpu = cache_.target() != Target::kHost;
  const bool by_element = gpu && (scatter.any_order || OrderIsIrrelevant(scatter.row, type)) &&
                          (scatter.row.formula == "b" || IsAtomic(type));
  Lines lines = by_element ? ElementsOf(scatter) : LinesOf(scatter);
  if (lines.layout.numel() == 0 || lines.length == 0) return Readiness::kReady;
  lines.layout.Collapse(/*may_permute=*/true);
  ScatterKey key = KeyFor(scatter, lines, gpu);
  if (gpu && !by_element && lines.length >= kLongIndex && lines.rows < ScatterKey::kNoRow &&
      SharesIndex(scatter.index, scatter.dim))
    return PlanRuns(scatter, lines, key, workspace, launches);
  if (by_element) {
    key.by = ScatterBy::kElement;
    key.blocks = cache_.code_target().AddsVectors() && TakeBlocks(scatter, lines);
  }
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  const Cut cut = by_element ? Cut{.pieces = lines.layout.numel(), .row_slice = lines.rows}
                  : gpu      ? GpuCut(lines)
                             : HostCut(key, lines);
  ScatterArguments<Planned> arguments = ArgumentsFor(scatter, lines, cut);
  if (gpu) {
    LaunchLanes(kernel, key, cut.ranges * cut.pieces, arguments, launches);
    return Readiness::kReady;
  }
  Launch& launch = launches.Add();
  launch.Reset(kernel, CeilDiv(cut.pieces, cut.piece_slice), cut.ranges);
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

absl::StatusOr<Readiness> ScatterPlanner::PlanRuns(const Scatter& scatter, const Lines& lines, ScatterKey key,
                                                   Workspace workspace, LaunchList& launches) {
  ScatterKey run_key = key;
  run_key.by = ScatterBy::kRun;
  // One kernel for all types.
  key = {.by = ScatterBy::kPrepare, .row = key.row, .index = key.index};
  ASSIGN_OR_RETURN(const Kernel* const prepare, cache_.Find(skeleton_, key));
  ASSIGN_OR_RETURN(const Kernel* const runs, cache_.Find(skeleton_, run_key));

  const auto length = static_cast<size_t>(lines.length);
  ASSIGN_OR_RETURN(void* const unsorted, workspace(length * sizeof(int32_t)));
  ASSIGN_OR_RETURN(void* const sorted, workspace(length * sizeof(int32_t)));
  ASSIGN_OR_RETURN(void* const order, workspace(length * sizeof(int64_t)));
  const auto vector = [&](void* data, ops::DType type) {
    Operand operand;
    operand.data = data;
    operand.dtype = type;
    operand.rank = 1;
    operand.sizes[0] = lines.length;
    operand.strides[0] = 1;
    return operand;
  };
  const std::array outputs = {vector(sorted, ops::DType::kInt32), vector(order, ops::DType::kInt64)};
  const std::array inputs = {vector(unsorted, ops::DType::kInt32)};
  const std::array attributes = {ops::Number::Integer(0), ops::Number::Integer(0)};
  static const ops::Row& sort_row = ops::RowOf("sort");
  const OpCall sort = {.row = &sort_row,
                       .compute = ops::DType::kInt32,
                       .outputs = outputs,
                       .inputs = inputs,
                       .attributes = attributes,
                       .error_word = scatter.error_word};

  ScatterArguments<Planned> arguments = ArgumentsFor(scatter, lines, {.pieces = lines.layout.numel()});
  arguments.sorted = unsorted;
  if (prepare != nullptr) LaunchLanes(prepare, key, lines.length, arguments, launches);
  ASSIGN_OR_RETURN(const Readiness sorts, sort_.Plan(sort, workspace, launches));
  if (prepare == nullptr || runs == nullptr || sorts == Readiness::kCompiling) return Readiness::kCompiling;
  arguments.sorted = sorted;
  arguments.order = order;
  LaunchLanes(runs, run_key, lines.length * lines.layout.numel(), arguments, launches);
  return Readiness::kReady;
}

constinit const PlannerFactory kScatterPlanner = MakePlanner<ScatterPlanner>;
constinit const PlannerFactory kScatterAnyOrderPlanner = MakePlanner<ScatterPlanner>;
constinit const PlannerFactory kScatterAddPlanner = MakePlanner<ScatterPlanner>;

}  // namespace xpud::kernels
