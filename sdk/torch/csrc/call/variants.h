// Finds the in-place and out= variants of a functional operator in PyTorch's dispatcher, by schema. Used only
// at load time.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/ops/op_table.h"

namespace xpud::shim {

enum class Variant { kFunctional, kInPlace, kOut };

// Returns the ATen overloads of a row ("add.Tensor"), without our own ("xpud::").
std::vector<std::string> OverloadsOf(const ops::Row& row);

// Index of the operators of namespace aten.
class VariantIndex {
 public:
  VariantIndex();
  std::optional<c10::OperatorHandle> Find(const std::string& overload) const;
  std::vector<c10::OperatorHandle> functional() const;
  // Returns the operators with the functional's arguments, of the same types, plus one out for each result,
  // or with a mutable self.
  std::vector<std::pair<Variant, c10::OperatorHandle>> VariantsOf(
      const c10::OperatorHandle& functional) const;
  const std::map<std::string, std::vector<c10::OperatorHandle>>& by_name() const { return by_name_; }

 private:
  std::map<std::string, std::vector<c10::OperatorHandle>> by_name_;  // "aten::add" to its overloads
};

// Returns whether an operator writes its first argument, its last ones, or none.
Variant VariantOf(const c10::FunctionSchema& schema);

}  // namespace xpud::shim
