// Lowers a scalar DAG to LLVM IR at one place of a skeleton.
//
// Type rules. Comparisons and ! && || give bool. Elsewhere, a bool next to a number takes the number's type,
// and two bools are computed in i32. An i64 (positions, counts, seeds) next to a float becomes the float;
// next to a smaller integer it stays i64. A literal takes the other operand's type, or alone the compute
// type.
//
// Used once, on one thread.
#pragma once

#include <array>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/compiler/emitter.h"
#include "kernels/compiler/formulas.h"

namespace xpud::kernels {

struct Typed {
  llvm::Value* value = nullptr;
  Scalar scalar = Scalar::kF32;
};

class Lowering {
 public:
  using Bindings = std::array<Typed, kNumVariables>;

  // `compute` is the type of literals and of `lowest`. If `width` > 1, values are vectors, and math functions
  // must not be called. `stored` is the type to which stored() rounds, if the family has one.
  Lowering(Emitter& emitter, const Expression& expression, Scalar compute, const Bindings& bindings,
           int width = 1, std::optional<ops::DType> stored = std::nullopt)
      : emitter_(emitter),
        expression_(expression),
        compute_(compute),
        bindings_(bindings),
        width_(width),
        stored_(stored),
        memo_(expression.size()) {}

  // Returns the value of node `id`, or InvalidArgument if a function is not defined for the type.
  absl::StatusOr<Typed> Lower(NodeId id);
  // As above, converted to `scalar`.
  absl::StatusOr<llvm::Value*> LowerAs(NodeId id, Scalar scalar);

 private:
  absl::StatusOr<Typed> LowerNew(const Node& node);
  absl::StatusOr<Typed> Limit(const Node& node);
  absl::StatusOr<Typed> Root(const Node& node);
  absl::StatusOr<Typed> CopysignOrFma(const Node& node);
  absl::StatusOr<Typed> Compare(const Node& node);
  absl::StatusOr<Typed> Logic(const Node& node);
  absl::StatusOr<Typed> Bits(const Node& node);
  absl::StatusOr<Typed> Arithmetic(const Node& node);
  absl::StatusOr<Typed> Where(const Node& node);
  absl::StatusOr<Typed> Classify(const Node& node);
  absl::StatusOr<Typed> Random(const Node& node);
  absl::StatusOr<Typed> Stored(const Node& node);
  absl::StatusOr<Typed> Rounding(const Node& node);
  absl::StatusOr<Typed> Extreme(const Node& node);
  absl::StatusOr<Typed> AbsOrSign(const Node& node);
  absl::StatusOr<Typed> Math(const Node& node);
  absl::StatusOr<Typed> IntegerDivide(const Node& node, Typed x, Typed y);

  bool IsLiteral(NodeId id) const;
  // Returns the type in which an operator takes its operands. With `arithmetic`, two bools become i32.
  absl::StatusOr<Scalar> Common(std::span<const NodeId> operands, bool arithmetic);
  absl::StatusOr<llvm::Value*> Bool(NodeId id) { return LowerAs(id, Scalar::kBool); }
  llvm::Value* Literal(const Node& node, Scalar scalar);

  Emitter& emitter_;
  const Expression& expression_;
  const Scalar compute_;
  const Bindings& bindings_;
  const int width_;
  const std::optional<ops::DType> stored_;
  std::vector<std::optional<Typed>> memo_;
};

}  // namespace xpud::kernels
