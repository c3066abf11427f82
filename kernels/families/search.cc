#include "kernels/families/search.h"

#include <bit>

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/order.h"

namespace xpud::kernels {

// ---- planning

namespace {

// Returns `line` (the sequence or its sorter) over out's dimensions: the start of the line of each element.
Operand StartsOver(const Operand& out, const Operand& line) {
  Operand over = out;
  for (size_t d = 0; d < out.rank; ++d)
    over.strides[d] = line.rank > 1 && d + 1 < line.rank ? line.strides[d] : 0;
  return over;
}

Layout LayoutOf(const ops::SearchCall<ops::Given>& search) {
  const Operand& out = *search.out;
  Layout layout = Layout::Over(out);
  layout.AddOperand(out);
  layout.AddOperand(*search.self);
  layout.AddOperand(StartsOver(out, *search.sorted_sequence));
  if (search.sorter->present) layout.AddOperand(StartsOver(out, *search.sorter));
  return layout;
}

}  // namespace

absl::StatusOr<Readiness> SearchPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const auto search = ops::Read<ops::SearchCall>(call);
  const Operand &out = *search.out, &sequence = *search.sorted_sequence, &self = *search.self,
                &sorter = *search.sorter;
  Layout layout = LayoutOf(search);
  if (layout.numel() == 0) return Readiness::kReady;
  layout.Collapse(/*may_permute=*/true);
  SearchKey key;
  key.type = sequence.dtype;
  key.out = out.dtype;
  key.right = search.right;
  key.sorts = sorter.present;
  if (key.sorts) key.sorter = sorter.dtype;
  key.rank = layout.rank;
  key.narrow = cache_.target() != Target::kHost && layout.Fits32();
  std::array<BoxOperand, 4> operands{};
  for (size_t o = 0; o < static_cast<size_t>(layout.operands); ++o)
    operands[o].access = key.access[o] = layout.AccessOf(static_cast<int>(o));
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  Launch& launch = launches.Add();
  launch.Reset(kernel, 1);
  const size_t last = static_cast<size_t>(sequence.rank) - 1;
  SearchArguments<Planned> arguments{};
  arguments.out = out.data;
  arguments.self = self.data;
  arguments.line = sequence.data;
  arguments.length = sequence.sizes[last];
  arguments.stride = sequence.strides[last];
  if (key.sorts) {
    arguments.sorter = sorter.data;
    arguments.sorter_stride = sorter.strides[last];
    arguments.error_word = call.error_word;
  }
  const float steps = static_cast<float>(std::bit_width(static_cast<uint64_t>(arguments.length)));
  PlanBox(cache_.target(), layout, {operands.data(), static_cast<size_t>(layout.operands)}, {},
          2.0f + 3.0f * steps, arguments.box, launch);
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

class SearchEmission : public BoxEmission {
 public:
  SearchEmission(const SearchKey& key, const SearchArguments<Emitted>& arguments, Emitter& emitter)
      : BoxEmission(emitter, arguments.box, {.rank = key.rank, .narrow = key.narrow, .access = key.access}),
        key_(key),
        args_(arguments),
        scalar_(ScalarOf(key.type)) {}

  using BoxEmission::EmitLoops;

 private:
  // State of a search: the range in which the result lies, and what it reports.
  Value EmitElement(const Values& offsets, Value) override {
    Value const wanted = e_.Load(key_.type, args_.self, offsets[1], scalar_);
    const Values found = e_.While(
        {e_.I64(0), args_.length, e_.I64(0)},
        [&](const Values& range) { return e_.ir().CreateICmpSLT(range[0], range[1]); },
        [&](const Values& range) -> Values {
          llvm::IRBuilder<>& ir = e_.ir();
          Value const middle = ir.CreateLShr(e_.Add(range[0], range[1]), e_.I64(1));
          Value report = range[2];
          Value const position = key_.sorts ? PositionAt(offsets[3], middle, report) : middle;
          Value const at = e_.Add(offsets[2], e_.Mul(position, args_.stride));
          Value const before = Precedes(e_.Load(key_.type, args_.line, at, scalar_), wanted);
          return {ir.CreateSelect(before, e_.Add(middle, e_.I64(1)), range[0]),
                  ir.CreateSelect(before, range[1], middle), report};
        });
    e_.Store(key_.out, args_.out, offsets[0], found[0], Scalar::kI64);
    return key_.sorts ? found[2] : nullptr;
  }
  void EmitReport(Value code) override { e_.ReportCode(args_.error_word, code); }

  // Returns position `at` of the sorter. A position out of range is added to `report` and becomes 0.
  Value PositionAt(Value base, Value at, Value& report) {
    Value const offset = e_.Add(base, e_.Mul(at, args_.sorter_stride));
    Value const position = e_.Load(key_.sorter, args_.sorter, offset, Scalar::kI64);
    Value const inside = e_.IsIndex(position, args_.length);
    Value const error = e_.ir().CreateSelect(inside, e_.I64(0), e_.IndexError(position));
    report = e_.ir().CreateBinaryIntrinsic(llvm::Intrinsic::umax, report, error);
    return e_.ir().CreateSelect(inside, position, e_.I64(0));
  }

  // Not "element >= wanted" (right: ">"), so that the search goes on to the right of and for NaN.
  Value Precedes(Value element, Value wanted) {
    llvm::IRBuilder<>& ir = e_.ir();
    const bool right = key_.right;
    if (IsFloat(scalar_))
      return ir.CreateNot(right ? ir.CreateFCmpOGT(element, wanted) : ir.CreateFCmpOGE(element, wanted));
    if (scalar_ == Scalar::kU8)
      return right ? ir.CreateICmpULE(element, wanted) : ir.CreateICmpULT(element, wanted);
    return right ? ir.CreateICmpSLE(element, wanted) : ir.CreateICmpSLT(element, wanted);
  }

  const SearchKey& key_;
  const SearchArguments<Emitted>& args_;
  const Scalar scalar_;
};

}  // namespace

absl::Status SearchSkeleton::EmitBody(const SearchKey& key, const SearchArguments<Emitted>& arguments,
                                      Emitter& e) const {
  SearchEmission(key, arguments, e).EmitLoops();
  return absl::OkStatus();
}

constinit const PlannerFactory kSearchPlanner = MakePlanner<SearchPlanner>;

}  // namespace xpud::kernels
