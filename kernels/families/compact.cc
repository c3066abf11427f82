#include "kernels/families/compact.h"

#include <algorithm>
#include <bit>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/compact.h"
#include "proto/ops/family.h"

namespace xpud::kernels {

// ---- planning

namespace {

constexpr int64_t kLaneElements = ops::kCountBlock / kGpuLanes;

// The operands of a call of either family; a count has no `out`.
ops::CompactCall<ops::Given> OperandsOf(const OpCall& call) {
  if (call.row->family == ops::Family::kCompact) return ops::Read<ops::CompactCall>(call);
  const auto count = ops::Read<ops::CountCall>(call);
  return {.out = nullptr, .self = count.self, .ends = count.ends};
}

CompactKey KeyFor(const ops::CompactCall<ops::Given>& compact, const Layout& layout) {
  const Operand& self = *compact.self;
  CompactKey key;
  key.count = compact.out == nullptr;
  key.size_log2 = std::countr_zero(ops::SizeOf(self.dtype));
  key.floating = ops::IsFloating(self.dtype);
  key.ends = compact.ends->dtype;
  key.rank = layout.rank;
  key.dense = layout.rank == 1 && layout.AccessOf(0) == Access::kContiguous;
  key.columns = key.count ? 0 : self.rank;
  return key;
}

// About how many nanoseconds an element takes. Divisions find its place in a strided input, and its indices.
float NanosecondsOf(const CompactKey& key) {
  const float load = key.rank > 1 ? 3.0f * static_cast<float>(key.rank) : 0.3f;
  return key.count ? load : load + 1.0f + static_cast<float>(std::max(key.columns - 1, 0)) * 3.0f;
}

CompactArguments<Planned> ArgumentsFor(const OpCall& call, const ops::CompactCall<ops::Given>& compact,
                                       const CompactKey& key, int64_t elements) {
  CompactArguments<Planned> arguments{};
  arguments.self = compact.self->data;
  arguments.ends = compact.ends->data;
  arguments.ends_stride = compact.ends->strides[0];
  arguments.elements = elements;
  arguments.blocks = CeilDiv(elements, ops::kCountBlock);
  arguments.block_slice = CeilDiv(SliceOf(elements, NanosecondsOf(key), ops::kCountBlock), ops::kCountBlock);
  if (key.count) return arguments;
  const Operand& out = *compact.out;
  arguments.out = out.data;
  arguments.error_word = call.error_word;
  arguments.rows = out.sizes[0];
  arguments.row_stride = out.strides[0];
  arguments.column_stride = out.strides[1];
  arguments.sizes = compact.self->sizes.data();
  return arguments;
}

}  // namespace

absl::StatusOr<Readiness> CompactPlanner::Plan(const OpCall& call, Workspace workspace,
                                               LaunchList& launches) {
  const auto compact = OperandsOf(call);
  Layout layout = Layout::Over(*compact.self);
  layout.AddOperand(*compact.self);
  const int64_t elements = layout.numel();
  if (elements == 0) return Readiness::kReady;
  layout.Collapse(/*may_permute=*/false);
  const CompactKey key = KeyFor(compact, layout);
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel != nullptr) {
    CompactArguments<Planned> arguments = ArgumentsFor(call, compact, key, elements);
    SetSpace(layout, arguments.space);
    Launch& launch = launches.Add();
    if (cache_.target() == Target::kHost) {
      launch.Reset(kernel, CeilDiv(arguments.blocks, arguments.block_slice));
    } else {
      launch.Reset(kernel, arguments.blocks);
      launch.group_size = {kGpuLanes, 1, 1};
    }
    PushArguments(key, arguments, launch);
  }
  Readiness scanned = Readiness::kReady;  // both kernels compile before either is waited for
  if (key.count && elements > ops::kCountBlock) {
    ASSIGN_OR_RETURN(scanned, AddUp(*compact.ends, workspace, launches));
  }
  return kernel == nullptr ? Readiness::kCompiling : scanned;
}

absl::StatusOr<Readiness> CompactPlanner::AddUp(const Operand& counts, Workspace workspace,
                                                LaunchList& launches) {
  static const ops::Row& running_sum = ops::RowOf("cumsum");
  const ops::Number dim = ops::Number::Integer(0);
  return scans_.Plan({.row = &running_sum,
                      .compute = ops::DType::kInt64,
                      .outputs = {&counts, 1},
                      .inputs = {&counts, 1},
                      .attributes = {&dim, 1}},
                     workspace, launches);
}

// ---- emission

namespace {

using Value = llvm::Value*;
using Values = Emitter::Values;

class CompactEmission {
 public:
  CompactEmission(const CompactKey& key, const CompactArguments<Emitted>& arguments, Emitter& emitter)
      : key_(key),
        args_(arguments),
        e_(emitter),
        storage_(e_.ir().getIntNTy(8u << static_cast<unsigned>(key.size_log2))) {}

  void Run() {
    if (e_.gpu()) {
      EmitLanes(e_.Group(0));
      return;
    }
    Value const first = e_.Mul(e_.Group(0), args_.block_slice);
    Value const last = e_.Min(e_.Add(first, args_.block_slice), args_.blocks);
    e_.Loop(first, last, e_.I64(1), [&](Value block) { EmitBlock(block); });
  }

 private:
  // 1 where element `item` is not zero.
  Value IsTrue(Value item) {
    Value const offset = key_.dense ? item : OffsetsOf(e_, args_.space, item, key_.rank, 1)[0];
    Value bits = e_.LoadRaw(storage_, args_.self, offset);
    if (key_.floating) bits = e_.ir().CreateShl(bits, 1);  // without its sign
    return e_.ir().CreateZExt(e_.ir().CreateICmpNE(bits, llvm::ConstantInt::get(storage_, 0)),
                              e_.ir().getInt64Ty());
  }

  // ---- rows

  struct Rows {
    Value begin, end;  // of a block; both 0 where one of them is out of range
  };
  Value LoadEnd(Value block) {
    return e_.Load(key_.ends, args_.ends, e_.Mul(block, args_.ends_stride), Scalar::kI64);
  }
  // `reports`: the lanes that report the block's end.
  Rows RowsOf(Value block, Value reports) {
    Value const first = e_.ir().CreateICmpEQ(block, e_.I64(0));
    Value const before = e_.ir().CreateSelect(first, e_.I64(0), e_.ir().CreateSub(block, e_.I64(1)));
    Value const begin = e_.ir().CreateSelect(first, e_.I64(0), LoadEnd(before)), end = LoadEnd(block);
    Value const limit = e_.Add(args_.rows, e_.I64(1));
    Value const right = e_.IsIndex(end, limit);
    e_.ReportIndex(args_.error_word, e_.ir().CreateAnd(reports, e_.ir().CreateNot(right)), end);
    Value const both = e_.ir().CreateAnd(right, e_.IsIndex(begin, limit));
    return {e_.ir().CreateSelect(both, begin, e_.I64(0)), e_.ir().CreateSelect(both, end, e_.I64(0))};
  }
  // Writes the indices of element `item` to `row`, if it is `chosen` (1) and the row is one of `rows`.
  void Write(Value chosen, Value item, Value row, const Rows& rows) {
    Value const inside = e_.ir().CreateICmpSLT(row, rows.end);
    e_.If(e_.ir().CreateAnd(e_.ir().CreateICmpNE(chosen, e_.I64(0)), inside), [&] {
      Value const base = e_.Mul(row, args_.row_stride);
      Value rest = item;
      for (auto d = static_cast<size_t>(key_.columns); d-- > 0;) {
        Value const index = d == 0 ? rest : e_.ir().CreateURem(rest, args_.sizes[d]);
        if (d > 0) rest = e_.ir().CreateUDiv(rest, args_.sizes[d]);
        Value const column = e_.Mul(e_.I64(static_cast<int64_t>(d)), args_.column_stride);
        e_.Store(ops::DType::kInt64, args_.out, e_.Add(base, column), index, Scalar::kI64);
      }
    });
  }

  // ---- host

  void EmitBlock(Value block) {
    Value const begin = e_.Mul(block, e_.I64(ops::kCountBlock));
    Value const end = e_.Min(e_.Add(begin, e_.I64(ops::kCountBlock)), args_.elements);
    if (key_.count) {
      const Values counted = e_.Loop(
          begin, end, e_.I64(1), {e_.I64(0)},
          [&](Value item, const Values& so_far) -> Values { return {e_.Add(so_far[0], IsTrue(item))}; });
      StoreCount(block, counted[0]);
      return;
    }
    const Rows rows = RowsOf(block, e_.ir().getTrue());
    e_.Loop(begin, end, e_.I64(1), {rows.begin}, [&](Value item, const Values& row) -> Values {
      Value const chosen = IsTrue(item);
      Write(chosen, item, row[0], rows);
      return {e_.Add(row[0], chosen)};
    });
  }

  void StoreCount(Value block, Value count) {
    e_.Store(ops::DType::kInt64, args_.ends, e_.Mul(block, args_.ends_stride), count, Scalar::kI64);
  }

  // ---- GPU

  void EmitLanes(Value block) {
    Value const own =
        e_.Add(e_.Mul(block, e_.I64(ops::kCountBlock)), e_.Mul(e_.Lane(), e_.I64(kLaneElements)));
    Value const last = e_.ir().CreateSub(args_.elements, e_.I64(1));
    Values items, chosen;
    Value count = e_.I64(0);
    for (int64_t i = 0; i < kLaneElements; ++i) {
      items.push_back(e_.Add(own, e_.I64(i)));
      Value const inside = e_.ir().CreateICmpSLE(items.back(), last);
      chosen.push_back(e_.ir().CreateSelect(inside, IsTrue(e_.Min(items.back(), last)), e_.I64(0)));
      count = e_.Add(count, chosen.back());
    }
    Value const leads = e_.ir().CreateICmpEQ(e_.Lane(), e_.I64(0));
    if (key_.count) {
      const Values all = e_.MergeLanes(
          {count}, [&](const Values& a, const Values& b) -> Values { return {e_.Add(a[0], b[0])}; },
          /*once=*/true);
      e_.If(leads, [&] { StoreCount(block, all[0]); });
      return;
    }
    const Rows rows = RowsOf(block, leads);
    Value row = e_.Add(rows.begin, e_.ir().CreateSub(UpToLane(count), count));
    for (size_t i = 0; i < items.size(); ++i) {
      Write(chosen[i], items[i], row, rows);
      row = e_.Add(row, chosen[i]);
    }
  }

  // The sum of `mine` over the lanes up to this one.
  Value UpToLane(Value mine) {
    Value const shared = e_.Shared(e_.ir().getInt64Ty(), kGpuLanes);
    e_.StoreRaw(shared, e_.Lane(), mine);
    e_.Barrier();
    for (int64_t distance = 1; distance < kGpuLanes; distance *= 2) {
      Value const reaches = e_.ir().CreateICmpSGE(e_.Lane(), e_.I64(distance));
      Value const from =
          e_.ir().CreateSelect(reaches, e_.ir().CreateSub(e_.Lane(), e_.I64(distance)), e_.I64(0));
      Value const before = e_.LoadRaw(e_.ir().getInt64Ty(), shared, from);
      mine = e_.ir().CreateSelect(reaches, e_.Add(before, mine), mine);
      e_.Barrier();
      e_.StoreRaw(shared, e_.Lane(), mine);
      e_.Barrier();
    }
    return mine;
  }

  const CompactKey& key_;
  const CompactArguments<Emitted>& args_;
  Emitter& e_;
  llvm::IntegerType* const storage_;
};

}  // namespace

absl::Status CompactSkeleton::EmitBody(const CompactKey& key, const CompactArguments<Emitted>& arguments,
                                       Emitter& e) const {
  CompactEmission(key, arguments, e).Run();
  return absl::OkStatus();
}

constinit const PlannerFactory kCountPlanner = MakePlanner<CompactPlanner>;
constinit const PlannerFactory kCompactPlanner = MakePlanner<CompactPlanner>;

}  // namespace xpud::kernels
