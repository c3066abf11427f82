#include "kernels/box_emission.h"

#include <algorithm>

#include "kernels/slices.h"

namespace xpud::kernels {

void BoxEmission::AppendArguments(std::vector<ArgType>& args) {
  sizes_at_ = args.size();
  size_t words = static_cast<size_t>(space_.rank);
  for (int o = 0; o < operands(); ++o) {
    strides_at_.push_back(sizes_at_ + words);
    if (InMemory(o)) words += static_cast<size_t>(space_.rank - (AccessOf(o) == Access::kStrided ? 0 : 1));
  }
  slices_at_ = sizes_at_ + words;
  words += space_.rank == 1 ? 1 : 3;
  args.insert(args.end(), words, ArgType::kI64);
}

void BoxEmission::EmitLoops() {
  if (e_.gpu()) {
    EmitThread();
  } else if (space_.rank == 1) {
    EmitLine();
  } else {
    EmitBox();
  }
}

BoxEmission::Value BoxEmission::Stride(int operand, int dim) {
  if (dim == space_.rank - 1 && AccessOf(operand) != Access::kStrided) {
    return e_.I64(AccessOf(operand) == Access::kContiguous ? 1 : 0);
  }
  return e_.Arg(strides_at_[static_cast<size_t>(operand)] + static_cast<size_t>(dim));
}

BoxEmission::Values BoxEmission::OffsetsAt(const Values& base, Value j) {
  Values offsets;
  for (int o = 0; o < operands(); ++o) {
    if (!InMemory(o)) {
      offsets.push_back(nullptr);
      continue;
    }
    Value const start = base.empty() ? e_.I64(0) : base[static_cast<size_t>(o)];
    const bool fixed = AccessOf(o) == Access::kBroadcast;
    offsets.push_back(fixed ? start : e_.Add(start, e_.Mul(j, Stride(o, space_.rank - 1))));
  }
  return offsets;
}

void BoxEmission::EmitInner(const Values& base, Value first, Value begin, Value end) {
  bool reports = false;
  const Values reported = e_.Loop(
      begin, end, e_.I64(1), {e_.I64(0)},
      [&](Value j, const Values& worst) -> Values {
        Value const report = EmitElement(OffsetsAt(base, j), first == nullptr ? j : e_.Add(first, j));
        if (report == nullptr) return worst;
        reports = true;
        return {e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::umax, worst[0], report)};
      },
      Emitter::LoopKind::kParallel);
  if (reports) EmitReport(reported[0]);
}

void BoxEmission::EmitLine() {
  Value const begin = e_.Mul(e_.Group(0), Slice(0));
  EmitInner({}, nullptr, begin, End(begin, Slice(0), Size(0)));
}

void BoxEmission::EmitBox() {
  const int rank = space_.rank;
  Value planes = e_.I64(1);
  for (int d = 0; d < rank - 2; ++d) planes = e_.Mul(planes, Size(d));
  Value const plane_begin = e_.Mul(e_.Group(2), Slice(2));
  Value const row_begin = e_.Mul(e_.Group(1), Slice(1));
  Value const row_end = End(row_begin, Slice(1), Size(rank - 2));
  Value const begin = e_.Mul(e_.Group(0), Slice(0));
  Value const end = End(begin, Slice(0), Size(rank - 1));
  e_.Loop(plane_begin, End(plane_begin, Slice(2), planes), e_.I64(1), [&](Value plane) {
    const Values base = BaseOf(plane);
    const auto rows = [&](Value from, Value to) {
      e_.Loop(row_begin, row_end, e_.I64(1), [&](Value row) {
        Values row_base = base;
        Step(row_base, rank - 2, row);
        Value const first = e_.Mul(e_.Add(e_.Mul(plane, Size(rank - 2)), row), Size(rank - 1));
        EmitInner(row_base, first, from, to);
      });
    };
    if (!space_.tiled) return rows(begin, end);
    // Columns in tiles: a line of a transposed operand is used by all rows before it leaves the cache. More
    // than 16 lines at a power-of-two distance would evict each other.
    e_.Loop(begin, end, e_.I64(16), [&](Value from) { rows(from, e_.Min(e_.Add(from, e_.I64(16)), end)); });
  });
}

// Offsets of the operands at linear index `outer` of dimensions 0 .. rank - 3.
BoxEmission::Values BoxEmission::BaseOf(Value outer) {
  Values base(static_cast<size_t>(operands()), e_.I64(0));
  for (int d = space_.rank - 3; d >= 0; --d) {
    Value const at = d == 0 ? outer : e_.ir().CreateURem(outer, Size(d));
    if (d > 0) outer = e_.ir().CreateUDiv(outer, Size(d));
    Step(base, d, at);
  }
  return base;
}

void BoxEmission::Step(Values& base, int dim, Value at) {
  for (int o = 0; o < operands(); ++o) {
    if (InMemory(o))
      base[static_cast<size_t>(o)] = e_.Add(base[static_cast<size_t>(o)], e_.Mul(at, Stride(o, dim)));
  }
}

// One thread an element; index arithmetic in 32 bits where everything fits.
void BoxEmission::EmitThread() {
  Value const index = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
  Value total = Size(0);
  for (int d = 1; d < space_.rank; ++d) total = e_.Mul(total, Size(d));
  e_.If(e_.ir().CreateICmpSLT(index, total), [&] {
    Values base(static_cast<size_t>(operands()), e_.I64(0));
    auto* const type = space_.narrow ? e_.ir().getInt32Ty() : e_.ir().getInt64Ty();
    const auto narrow = [&](Value v) { return e_.ir().CreateTrunc(v, type); };
    Value rest = narrow(index);
    for (int d = space_.rank - 1; d >= 0; --d) {
      Value const size = narrow(Size(d));
      Value const at = d == 0 ? rest : e_.ir().CreateURem(rest, size);
      if (d > 0) rest = e_.ir().CreateUDiv(rest, size);
      Step(base, d, e_.ir().CreateZExt(at, e_.ir().getInt64Ty()));
    }
    Value const report = EmitElement(base, index);
    if (report != nullptr) EmitReport(report);
  });
}

void PushBox(Target target, const Layout& layout, std::span<const Access> access, float nanoseconds,
             Launch& launch) {
  for (int d = 0; d < layout.rank; ++d) launch.Push(layout.sizes[static_cast<size_t>(d)]);
  for (int o = 0; o < layout.operands; ++o) {
    const Access a = access[static_cast<size_t>(o)];
    if (a == Access::kImmediate) continue;
    const int count = layout.rank - (a == Access::kStrided ? 0 : 1);
    for (int d = 0; d < count; ++d) launch.Push(layout.stride(o, d));
  }
  const int64_t total = layout.numel(), inner = layout.inner();
  if (target != Target::kHost) {
    launch.SetGroups(static_cast<uint32_t>(CeilDiv(total, kGpuLanes)));
    launch.group_size = {kGpuLanes, 1, 1};
    for (int s = 0; s < (layout.rank == 1 ? 1 : 3); ++s) launch.Push(int64_t{0});
    return;
  }
  const int64_t whole = SliceOf(total, nanoseconds);  // elements a group
  const int64_t inner_slice = std::min(whole, inner);
  launch.Push(inner_slice);
  if (layout.rank == 1) {
    launch.SetGroups(static_cast<uint32_t>(CeilDiv(inner, inner_slice)));
    return;
  }
  const int64_t rows = layout.sizes[static_cast<size_t>(layout.rank - 2)];
  const int64_t planes = total / inner / rows;
  const int64_t row_slice = std::clamp<int64_t>(whole / inner_slice, 1, rows);
  const int64_t plane_slice = std::clamp<int64_t>(whole / (inner_slice * row_slice), 1, planes);
  launch.Push(row_slice);
  launch.Push(plane_slice);
  launch.SetGroups(static_cast<uint32_t>(CeilDiv(inner, inner_slice)),
                   static_cast<uint32_t>(CeilDiv(rows, row_slice)),
                   static_cast<uint32_t>(CeilDiv(planes, plane_slice)));
}

}  // namespace xpud::kernels
