#include "kernels/map/map_skeleton.h"

#include <cctype>

#include "absl/strings/str_cat.h"
#include "kernels/compiler/lowering.h"
#include "kernels/skeleton_number.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

KernelKey MapKey::Pack() const {
  KeyWriter writer(static_cast<uint8_t>(SkeletonNumber::kMap));
  writer.Put(row->number, 10);
  writer.Put(static_cast<uint64_t>(variant), 3);
  writer.Put(static_cast<uint64_t>(compute), 4);
  writer.Put(static_cast<uint64_t>(rank), 4);
  writer.Put(tiled, 1);
  writer.Put(narrow, 1);
  writer.Put(static_cast<uint64_t>(operands), 4);
  for (size_t o = 0; o < static_cast<size_t>(operands); ++o) {
    writer.Put(static_cast<uint64_t>(dtypes[o]) | static_cast<uint64_t>(access[o]) << 4, 6);
  }
  return writer.key();
}

MapKey MapKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  MapKey key;
  key.row = ops::FindRow(static_cast<uint16_t>(reader.Take(10)));
  key.variant = static_cast<int>(reader.Take(3));
  key.compute = static_cast<ops::DType>(reader.Take(4));
  key.rank = static_cast<int>(reader.Take(4));
  key.tiled = reader.Take(1) != 0;
  key.narrow = reader.Take(1) != 0;
  key.operands = static_cast<int>(reader.Take(4));
  for (size_t o = 0; o < static_cast<size_t>(key.operands); ++o) {
    key.dtypes[o] = static_cast<ops::DType>(reader.Take(4));
    key.access[o] = static_cast<Access>(reader.Take(2));
  }
  return key;
}

std::string_view MapFormulaText(const ops::Row& row, int variant) {
  constexpr std::string_view kCheaper[] = {"", "a * a", "a * a * a", "sqrt(a)", "1 / a"};
  return variant == kAsWritten ? row.formula : kCheaper[variant];
}

uint32_t SeedInputs(const Expression& expression) {
  uint32_t seeds = 0;
  for (size_t id = 0; id < expression.size(); ++id) {
    const Node& node = expression[static_cast<NodeId>(id)];
    if (node.op < Op::kRand) continue;
    for (int i = 0; i < node.arity; ++i) {
      const Node& operand = expression[node.operands[static_cast<size_t>(i)]];
      if (operand.op == Op::kVariable) seeds |= 1u << static_cast<unsigned>(operand.variable);
    }
  }
  return seeds;
}

namespace {

using Value = llvm::Value*;
using Values = std::vector<llvm::Value*>;

// The emission of one map kernel.
class MapEmission {
 public:
  MapEmission(const MapKey& key, const MapFormula& formula, Emitter& emitter)
      : key_(key), formula_(formula), e_(emitter), outputs_(static_cast<int>(formula.outputs.size())),
        seeds_(SeedInputs(formula.expression)) {}

  absl::Status Run(const std::string& name) {
    Begin(name);
    if (e_.gpu()) {
      EmitThread();
    } else if (key_.rank == 1) {
      EmitLine();
    } else {
      EmitBox();
    }
    return status_;
  }

 private:
  Scalar ScalarOfInput(int operand) const {
    const bool seed = (seeds_ >> (operand - outputs_) & 1) != 0;
    return seed ? Scalar::kI64 : ScalarOf(key_.compute);
  }
  Access AccessOf(int operand) const { return key_.access[static_cast<size_t>(operand)]; }
  bool InMemory(int operand) const { return AccessOf(operand) != Access::kImmediate; }

  void Begin(const std::string& name) {
    std::vector<ArgType> args;
    for (int o = 0; o < key_.operands; ++o) {
      args.push_back(InMemory(o) ? ArgType::kPointer : ImmediateArg(ScalarOfInput(o)));
    }
    sizes_at_ = args.size();
    size_t words = static_cast<size_t>(key_.rank);
    for (int o = 0; o < key_.operands; ++o) {
      strides_at_.push_back(sizes_at_ + words);
      if (InMemory(o)) words += static_cast<size_t>(key_.rank - (AccessOf(o) == Access::kStrided ? 0 : 1));
    }
    slices_at_ = sizes_at_ + words;
    words += key_.rank == 1 ? 1 : 3;
    args.insert(args.end(), words, ArgType::kI64);
    e_.Begin(name, args);
  }

  Value Size(int dim) const { return e_.Arg(sizes_at_ + static_cast<size_t>(dim)); }
  Value Stride(int operand, int dim) {
    if (dim == key_.rank - 1 && AccessOf(operand) != Access::kStrided) {
      return e_.I64(AccessOf(operand) == Access::kContiguous ? 1 : 0);
    }
    return e_.Arg(strides_at_[static_cast<size_t>(operand)] + static_cast<size_t>(dim));
  }
  Value Slice(size_t axis) const { return e_.Arg(slices_at_ + axis); }

  // The element at offset `offsets[o]` of each operand, number `index` of the output.
  void EmitElement(const Values& offsets, Value index) {
    Lowering::Bindings bindings{};
    bindings[static_cast<size_t>(Variable::kIndex)] = {index, Scalar::kI64};
    for (int o = outputs_; o < key_.operands; ++o) {
      const Scalar scalar = ScalarOfInput(o);
      Value const value = InMemory(o) ? e_.Load(Type(o), e_.Arg(static_cast<size_t>(o)), offsets[static_cast<size_t>(o)], scalar)
                                      : Immediate(o, scalar);
      bindings[static_cast<size_t>(o - outputs_)] = {value, scalar};
    }
    Lowering lowering(e_, formula_.expression, ScalarOf(key_.compute), bindings);
    std::vector<Typed> results;
    for (const NodeId root : formula_.outputs) {
      const absl::StatusOr<Typed> result = LowerOutput(lowering, root);
      if (!result.ok()) {
        status_ = result.status();
        return;
      }
      results.push_back(*result);
    }
    for (size_t o = 0; o < results.size(); ++o) {
      e_.Store(key_.dtypes[o], e_.Arg(o), offsets[o], results[o].value, results[o].scalar);
    }
  }

  absl::StatusOr<Typed> LowerOutput(Lowering& lowering, NodeId root) { return lowering.Lower(root); }

  ops::DType Type(int operand) const { return key_.dtypes[static_cast<size_t>(operand)]; }

  Value Immediate(int operand, Scalar scalar) {
    const Scalar passed = IsFloat(scalar) ? scalar : Scalar::kI64;
    return e_.Convert(e_.Arg(static_cast<size_t>(operand)), passed, scalar);
  }

  Values OffsetsAt(const Values& base, Value j) {
    Values offsets;
    for (int o = 0; o < key_.operands; ++o) {
      if (!InMemory(o)) {
        offsets.push_back(nullptr);
        continue;
      }
      Value const start = base.empty() ? e_.I64(0) : base[static_cast<size_t>(o)];
      offsets.push_back(AccessOf(o) == Access::kBroadcast ? start
                                                          : e_.Add(start, e_.Mul(j, Stride(o, key_.rank - 1))));
    }
    return offsets;
  }

  Value End(Value begin, Value slice, Value size) { return e_.Min(e_.Add(begin, slice), size); }

  void EmitLine() {
    Value const begin = e_.Mul(e_.Group(0), Slice(0));
    e_.Loop(begin, End(begin, Slice(0), Size(0)), e_.I64(1),
            [&](Value j) { EmitElement(OffsetsAt({}, j), j); }, Emitter::LoopKind::kParallel);
  }

  void EmitBox() {
    const int rank = key_.rank;
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
        e_.Loop(row_begin, row_end, e_.I64(1), [&](Value row) { EmitRow(base, plane, row, from, to); });
      };
      if (!key_.tiled) return rows(begin, end);
      // Columns in tiles: a line of a transposed operand is used by all rows before it leaves the cache.
      e_.Loop(begin, end, e_.I64(64), [&](Value from) { rows(from, e_.Min(e_.Add(from, e_.I64(64)), end)); });
    });
  }

  // Offsets of the operands at linear index `outer` of dimensions 0 .. rank - 3.
  Values BaseOf(Value outer) {
    Values base(static_cast<size_t>(key_.operands), e_.I64(0));
    for (int d = key_.rank - 3; d >= 0; --d) {
      Value const at = d == 0 ? outer : e_.ir().CreateURem(outer, Size(d));
      if (d > 0) outer = e_.ir().CreateUDiv(outer, Size(d));
      Step(base, d, at);
    }
    return base;
  }

  void Step(Values& base, int dim, Value at) {
    for (int o = 0; o < key_.operands; ++o) {
      if (InMemory(o)) base[static_cast<size_t>(o)] = e_.Add(base[static_cast<size_t>(o)], e_.Mul(at, Stride(o, dim)));
    }
  }

  void EmitRow(Values base, Value plane, Value row, Value begin, Value end) {
    Step(base, key_.rank - 2, row);
    Value const first = e_.Mul(e_.Add(e_.Mul(plane, Size(key_.rank - 2)), row), Size(key_.rank - 1));
    e_.Loop(begin, end, e_.I64(1), [&](Value j) { EmitElement(OffsetsAt(base, j), e_.Add(first, j)); },
            Emitter::LoopKind::kParallel);
  }

  // One thread an element; index arithmetic in 32 bits where everything fits.
  void EmitThread() {
    Value const index = e_.Add(e_.Mul(e_.Group(0), e_.Lanes()), e_.Lane());
    Value total = Size(0);
    for (int d = 1; d < key_.rank; ++d) total = e_.Mul(total, Size(d));
    e_.If(e_.ir().CreateICmpSLT(index, total), [&] {
      Values base(static_cast<size_t>(key_.operands), e_.I64(0));
      auto* const type = key_.narrow ? e_.ir().getInt32Ty() : e_.ir().getInt64Ty();
      const auto narrow = [&](Value v) { return e_.ir().CreateTrunc(v, type); };
      Value rest = narrow(index);
      for (int d = key_.rank - 1; d >= 0; --d) {
        Value const size = narrow(Size(d));
        Value const at = d == 0 ? rest : e_.ir().CreateURem(rest, size);
        if (d > 0) rest = e_.ir().CreateUDiv(rest, size);
        Step(base, d, e_.ir().CreateZExt(at, e_.ir().getInt64Ty()));
      }
      EmitElement(base, index);
    });
  }

  const MapKey& key_;
  const MapFormula& formula_;
  Emitter& e_;
  const int outputs_;
  const uint32_t seeds_;
  size_t sizes_at_ = 0, slices_at_ = 0;
  std::vector<size_t> strides_at_;
  absl::Status status_;
};

}  // namespace

std::string MapSkeleton::NameOf(const KernelKey& packed) const {
  std::string name = "map_";
  for (const char c : MapKey::Unpack(packed).row->aten) {
    if (c == '|') break;
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return name;
}

std::string MapSkeleton::Describe(const KernelKey& packed) const {
  const MapKey key = MapKey::Unpack(packed);
  return std::string(MapFormulaText(*key.row, key.variant));
}

absl::Status MapSkeleton::Emit(const KernelKey& packed, const std::string& name, Emitter& emitter) const {
  const MapKey key = MapKey::Unpack(packed);
  ASSIGN_OR_RETURN(const MapFormula formula, ParseMap(MapFormulaText(*key.row, key.variant)));
  return MapEmission(key, formula, emitter).Run(name);
}

}  // namespace xpud::kernels
