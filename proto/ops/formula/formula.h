// Parsed formulas of the op table. proto/ops/op_table.h describes the language. Plain values; thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/ops/formula/expression.h"

namespace xpud::formula {

// `f; g`: a root for each output.
struct MapFormula {
  Expression expression;
  std::vector<NodeId> outputs;
};

// `init | step | merge | finish`.
struct ReduceFormula {
  struct Component {
    NodeId init;
    NodeId step;
    NodeId merge;
    bool position = false;  // `:i64`: holds a position and is i64 for any accumulate type
  };
  static constexpr size_t kMaxComponents = 4;  // of the state

  Expression expression;
  std::vector<Component> state;
  std::vector<NodeId> outputs;  // finish
};

// Returns InvalidArgument with the position of the error. The table is our own, so an error is a bug in it.
absl::StatusOr<MapFormula> ParseMap(std::string_view text);
absl::StatusOr<ReduceFormula> ParseReduce(std::string_view text);

}  // namespace xpud::formula
