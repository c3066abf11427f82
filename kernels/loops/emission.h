// Writes the code of one body of a loop kernel, for any target.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/api/op_call.h"
#include "kernels/compiler/emitter.h"
#include "kernels/loops/arguments.h"
#include "kernels/loops/passes.h"
#include "kernels/loops/variant.h"

namespace xpud::kernels {

// Used once.
class LoopEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  LoopEmission(const LoopVariant& variant, const LoopArguments<Emitted>& arguments, Emitter& emitter);

  // Fills the open kernel. Returns Unimplemented for what the target cannot do.
  absl::Status Run();

 private:
  // What the loops of a pass carry: the states of its reductions, of its scans along the last dimension, and
  // the error to report.
  struct PassState {
    struct Part {
      uint32_t statement;
      int pass;
      size_t first, count;  // values
      bool scans;
    };
    std::vector<Part> parts;
    size_t values = 0;  // of all parts
    Values empty;       // the values at the start, and then that of the error, if there is one
    bool scans = false;
  };

  static Values PartOf(const Values& all, const PassState::Part& part) {
    const auto first = all.begin() + static_cast<ptrdiff_t>(part.first);
    return {first, first + static_cast<ptrdiff_t>(part.count)};
  }
  bool is_team() const { return e_.gpu() && variant_.call().schedule == LoopSchedule::kRows; }
  const loops::Statement& At(uint32_t i) const { return body_.statements[i]; }

  // Loops over points.
  void EmitHostPoints();
  void EmitGpuPoints();
  void EmitPoint(Value point);
  // Sets the iterators of the first `dimensions` from their linear number.
  void SetIterators(Value number, size_t dimensions);
  void EmitPhases();
  void EmitPass(uint32_t pass);
  // Folds the reduced dimensions from `dimension` on.
  Values Fold(size_t dimension, uint32_t pass, const PassState& state);
  Values FoldRange(size_t dimension, Value begin, Value end, uint32_t pass, const PassState& state);
  Values EmitPosition(uint32_t pass, const PassState& state, const Values& carried);
  Values MergeStates(const PassState& state, const Values& a, const Values& b);

  // Statements from `from` to `to` that are in the section.
  void EmitSection(const LoopSection& section, uint32_t from, uint32_t to);
  void EmitStatement(uint32_t i);
  // A mask's block and its kUnmask, which has the number `end`.
  void EmitBlock(const LoopSection& section, uint32_t mask, uint32_t end);
  Value Stored(ops::DType type, Value value);
  Value Load(uint32_t i);
  void Store(uint32_t i);
  void AddAtomically(const loops::Statement& s, Value index, Value value);
  Value Call(uint32_t i);
  Value Random(uint32_t i);
  Value Bitcast(const loops::Statement& s);
  void CheckIndirect(uint32_t i);
  Value Search(uint32_t i);
  void Scan(uint32_t i);

  Value Index(uint32_t node);
  Value Divide(Value a, Value b, bool is_natural, bool remainder);
  Value ValueOf(uint32_t statement, size_t part = 0) const { return values_[statement][part]; }
  Value ValueOf(const loops::Statement& s, size_t which) const { return ValueOf(s.values[which]); }
  Scalar ScalarOfValue(uint32_t statement) const {
    return ScalarOf(variant_.info().statements[statement].type);
  }
  void Give(uint32_t statement, Value value) { values_[statement] = {value, nullptr, nullptr}; }
  // Whether the operand has an element `index`; reports it if not. Null: it is known to have it.
  Value Inside(uint32_t statement, Value index);
  void Report(uint32_t statement, Value bad, DeviceError error, Value index);
  // Runs `emit`; what it makes is forgotten afterwards, because what follows may not run after it.
  void InScope(const std::function<void()>& emit);
  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  const LoopVariant& variant_;
  const loops::Body& body_;
  const LoopArguments<Emitted>& args_;
  Emitter& e_;
  const LoopPasses passes_;
  const size_t outer_, rank_;
  bool is_serial_ = false;  // its points add to the same elements, so one group runs all in their order

  Values iterators_, extents_;
  // Of index nodes, and of the parts of statements; null: not made in this scope.
  Values indices_;
  std::vector<std::array<Value, 3>> values_;
  Values valid_;                    // of each kIndirect: whether the index was in its bound
  std::vector<Values> first_pass_;  // of each reduction of two passes: what the first one gave
  // While a pass runs: the scans' states, by statement.
  std::vector<Values> scan_states_;
  Value code_ = nullptr;  // to be reported; null: nothing is checked
  absl::Status status_;
};

}  // namespace xpud::kernels
