// Formulas of the op table, parsed. The language is described in proto/ops/op_table.h. Plain values; any
// thread.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/compiler/expression.h"

namespace xpud::kernels {

// `f; g`: one root for each output.
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
    bool position = false;  // `:i64`: holds a position, whatever the accumulate type
  };
  Expression expression;
  std::vector<Component> state;
  std::vector<NodeId> outputs;  // finish
};

// InvalidArgument names the place: the table is ours, so it is a bug there.
absl::StatusOr<MapFormula> ParseMap(std::string_view text);
absl::StatusOr<ReduceFormula> ParseReduce(std::string_view text);

}  // namespace xpud::kernels
