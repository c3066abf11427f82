#include "kernels/families/map_skeleton.h"

#include <cctype>

#include "absl/strings/str_cat.h"
#include "kernels/compiler/lowering.h"
#include "kernels/families/box_emission.h"
#include "kernels/families/skeleton_number.h"
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
  writer.Put(static_cast<uint64_t>(block_log2), 2);
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
  key.block_log2 = static_cast<int>(reader.Take(2));
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

// The emission of one map kernel.
class MapEmission : public BoxEmission {
 public:
  MapEmission(const MapKey& key, const MapFormula& formula, Emitter& emitter)
      : BoxEmission(emitter, {key.rank,
                              key.tiled,
                              key.narrow,
                              1 << key.block_log2,
                              {key.access.begin(), key.access.begin() + key.operands},
                              {key.dtypes.begin(), key.dtypes.begin() + key.operands}}),
        key_(key),
        formula_(formula),
        outputs_(static_cast<int>(formula.outputs.size())),
        seeds_(SeedInputs(formula.expression)) {}

  absl::Status Run(const std::string& name) {
    std::vector<ArgType> args;
    for (int o = 0; o < operands(); ++o) {
      args.push_back(InMemory(o) ? ArgType::kPointer : ImmediateArg(ScalarOfInput(o)));
    }
    AppendArguments(args);
    e_.Begin(name, args);
    EmitLoops();
    return status_;
  }

 private:
  Scalar ScalarOfInput(int operand) const {
    const bool seed = operand >= outputs_ && (seeds_ >> (operand - outputs_) & 1) != 0;
    return seed ? Scalar::kI64 : ScalarOf(key_.compute);
  }

  Value EmitElement(const Values& offsets, Value index) override {
    Values inputs;
    for (int o = outputs_; o < operands(); ++o) inputs.push_back(Input(o, ScalarOfInput(o), offsets));
    const std::vector<Typed> results = Compute(inputs, index);
    for (size_t o = 0; o < results.size(); ++o) {
      e_.Store(key_.dtypes[o], e_.Arg(o), offsets[o], results[o].value, results[o].scalar);
    }
    return nullptr;
  }

  // All loads come before the first store, which may be in place.
  Value EmitBlock(const Values& offsets, Value index, int block) override {
    std::vector<Values> inputs(static_cast<size_t>(block));
    for (int o = outputs_; o < operands(); ++o) {
      const auto at = static_cast<size_t>(o);
      Values values;
      if (AccessOf(o) == Access::kContiguous) {
        values = e_.LoadBlock(key_.dtypes[at], e_.Arg(at), offsets[at], ScalarOfInput(o), block);
      } else {
        values.assign(inputs.size(), Input(o, ScalarOfInput(o), offsets));
      }
      for (size_t e = 0; e < inputs.size(); ++e) inputs[e].push_back(values[e]);
    }
    std::vector<std::vector<Typed>> results;
    for (size_t e = 0; e < inputs.size(); ++e)
      results.push_back(Compute(inputs[e], e_.Add(index, e_.I64(static_cast<int64_t>(e)))));
    for (size_t o = 0; o < results[0].size(); ++o) {
      Values values;
      for (const std::vector<Typed>& element : results) values.push_back(element[o].value);
      e_.StoreBlock(key_.dtypes[o], e_.Arg(o), offsets[o], values, results[0][o].scalar);
    }
    return nullptr;
  }

  // The outputs for one element; none after an error.
  std::vector<Typed> Compute(const Values& inputs, Value index) {
    Lowering::Bindings bindings{};
    bindings[static_cast<size_t>(Variable::kIndex)] = {index, Scalar::kI64};
    for (size_t i = 0; i < inputs.size(); ++i)
      bindings[i] = {inputs[i], ScalarOfInput(outputs_ + static_cast<int>(i))};
    Lowering lowering(e_, formula_.expression, ScalarOf(key_.compute), bindings, 1, key_.dtypes[0]);
    std::vector<Typed> results;
    for (const NodeId root : formula_.outputs) {
      const absl::StatusOr<Typed> result = lowering.Lower(root);
      if (!result.ok()) {
        status_ = result.status();
        return {};
      }
      results.push_back(*result);
    }
    return results;
  }

  Value Input(int operand, Scalar scalar, const Values& offsets) {
    const size_t at = static_cast<size_t>(operand);
    if (Staged(operand) != nullptr) return e_.FromStorage(key_.dtypes[at], Staged(operand), scalar);
    if (InMemory(operand)) return e_.Load(key_.dtypes[at], e_.Arg(at), offsets[at], scalar);
    return e_.Convert(e_.Arg(at), IsFloat(scalar) ? scalar : Scalar::kI64, scalar);
  }

  const MapKey& key_;
  const MapFormula& formula_;
  const int outputs_;
  const uint32_t seeds_;
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
