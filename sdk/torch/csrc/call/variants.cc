// Lists operators, and finds the variants of an operator by schema.
#include "sdk/torch/csrc/call/variants.h"

#include <string_view>

namespace xpud::shim {

std::vector<std::string> OverloadsOf(const ops::Row& row) {
  std::vector<std::string> names;
  std::string_view rest = row.aten;
  while (!rest.empty()) {
    const size_t bar = rest.find('|');
    const std::string_view name = rest.substr(0, bar);
    if (!name.starts_with("xpud::")) names.emplace_back(name);
    rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
  }
  return names;
}

VariantIndex::VariantIndex() {
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    if (const auto op = dispatcher.findSchema(name)) by_name_[name.name].push_back(*op);
  }
}

std::optional<c10::OperatorHandle> VariantIndex::Find(const std::string& overload) const {
  const size_t dot = overload.find('.');
  const std::string suffix = dot == std::string::npos ? "" : overload.substr(dot + 1);
  const auto found = by_name_.find("aten::" + overload.substr(0, dot));
  if (found == by_name_.end()) return std::nullopt;
  for (const c10::OperatorHandle& op : found->second) {
    if (op.operator_name().overload_name == suffix) return op;
  }
  return std::nullopt;
}

Variant VariantOf(const c10::FunctionSchema& schema) {
  const auto writes = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  };
  if (schema.arguments().empty()) return Variant::kFunctional;
  if (writes(schema.arguments().back()) && schema.arguments().back().kwarg_only()) return Variant::kOut;
  return writes(schema.arguments().front()) ? Variant::kInPlace : Variant::kFunctional;
}

std::vector<c10::OperatorHandle> VariantIndex::functional() const {
  std::vector<c10::OperatorHandle> ops;
  for (const auto& [name, overloads] : by_name_) {
    for (const c10::OperatorHandle& op : overloads) {
      if (VariantOf(op.schema()) == Variant::kFunctional) ops.push_back(op);
    }
  }
  return ops;
}

namespace {

// Returns true if `other` takes the arguments of `schema`, followed by `outs` more.
bool HasArgumentsOf(const c10::FunctionSchema& schema, const c10::FunctionSchema& other, size_t outs) {
  const auto& mine = schema.arguments();
  const auto& theirs = other.arguments();
  if (theirs.size() != mine.size() + outs) return false;
  for (size_t i = 0; i < mine.size(); ++i) {
    if (mine[i].name() != theirs[i].name() || *mine[i].type() != *theirs[i].type()) return false;
  }
  return true;
}

bool ReturnsFreshTensors(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    // A view shares memory: its in-place form changes the view, not the memory.
    if (result.type()->kind() != c10::TypeKind::TensorType || result.alias_info() != nullptr) return false;
  }
  return !schema.returns().empty();
}

}  // namespace

std::vector<std::pair<Variant, c10::OperatorHandle>> VariantIndex::VariantsOf(
    const c10::OperatorHandle& functional) const {
  std::vector<std::pair<Variant, c10::OperatorHandle>> variants;
  const c10::FunctionSchema& schema = functional.schema();
  if (!ReturnsFreshTensors(schema)) return variants;
  const std::string& name = functional.operator_name().name;
  if (const auto found = by_name_.find(name + "_"); found != by_name_.end() && schema.returns().size() == 1) {
    for (const c10::OperatorHandle& op : found->second) {
      if (VariantOf(op.schema()) == Variant::kInPlace && HasArgumentsOf(schema, op.schema(), 0))
        variants.emplace_back(Variant::kInPlace, op);
    }
  }
  for (const c10::OperatorHandle& op : by_name_.at(name)) {
    if (VariantOf(op.schema()) == Variant::kOut &&
        HasArgumentsOf(schema, op.schema(), schema.returns().size())) {
      variants.emplace_back(Variant::kOut, op);
    }
  }
  return variants;
}

}  // namespace xpud::shim
