// Maps of tensor lists: a formula applied to each element of the lists, many tensors in a launch.
//
// A tensor whose operands are lines (dense, in the same order) joins a pack with its neighbours if they have
// the same types. Others are planned as maps of their own, in the list's order where they share memory.
#pragma once

#include <array>

#include "kernels/families/map.h"
#include "kernels/families/pack.h"
#include "proto/ops/operand_lists.h"

namespace xpud::kernels {

inline constexpr size_t kForeachInputs = 5;

struct ForeachKey {
  MapKey map;  // of a tensor
  // Bit i: input i is the same operand for all tensors.
  unsigned shared = 0;
  // Bit i: input i is the output.
  unsigned in_place = 0;
  bool small = false;

  size_t inputs() const { return static_cast<size_t>(map.operands) - 1; }
  Access AccessOf(size_t input) const { return map.access[input + 1]; }
  bool IsShared(size_t input) const { return (shared >> input & 1) != 0; }
  bool IsImmediate(size_t input) const { return AccessOf(input) == Access::kImmediate; }
  // Returns true if each tensor has an address for the input.
  bool HasSlot(size_t input) const {
    return !IsImmediate(input) && !IsShared(input) && (in_place >> input & 1) == 0;
  }
  bool HasNumbers(size_t input) const { return IsImmediate(input) && !IsShared(input); }
  // The number of addresses of a tensor.
  int slots() const {
    int slots = 1;
    for (size_t i = 0; i < inputs(); ++i) slots += HasSlot(i) ? 1 : 0;
    return slots;
  }
  int capacity() const {
    int numbers = 0, others = 0;
    for (size_t i = 0; i < inputs(); ++i) {
      numbers += HasNumbers(i) ? 1 : 0;
      others += IsShared(i) ? 1 : 0;
    }
    return PackCapacity(slots() + numbers, others, small);
  }

  void Visit(auto& visit) {
    map.Visit(visit);
    visit(shared, static_cast<int>(kForeachInputs));
    visit(in_place, static_cast<int>(kForeachInputs));
    visit(small, 1);
  }
  bool operator==(const ForeachKey&) const = default;
};

template <typename Side>
struct ForeachArguments {
  PackArguments<Side> pack;  // addresses: the output, then inputs that are tensors of lists
  std::array<std::array<typename Side::Immediate, kPackTensors>, kForeachInputs> numbers;
  std::array<typename Side::Pointer, kForeachInputs> shared;
  std::array<typename Side::Immediate, kForeachInputs> shared_numbers;

  void Visit(const ForeachKey& key, auto& visit) {
    const int capacity = key.capacity();
    pack.Visit(key.slots(), capacity, visit);
    for (size_t i = 0; i < key.inputs(); ++i) {
      const Scalar scalar = ScalarOf(key.map.dtypes[i + 1]);
      if (key.HasNumbers(i)) {
        for (size_t t = 0; t < static_cast<size_t>(capacity); ++t) visit.Immediate(numbers[i][t], scalar);
      } else if (key.IsShared(i) && key.IsImmediate(i)) {
        visit.Immediate(shared_numbers[i], scalar);
      } else if (key.IsShared(i)) {
        visit(shared[i]);
      }
    }
  }
};

class ForeachSkeleton : public SkeletonOf<ForeachKey, ops::Family::kForeach, ForeachArguments> {
 public:
  std::string Name(const ForeachKey& key) const override { return NameWith("foreach_", *key.map.row); }
  std::string_view Formula(const ForeachKey& key) const override {
    return MapFormulaText(*key.map.row, key.map.variant);
  }
  absl::Status EmitBody(const ForeachKey& key, const ForeachArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class ForeachPlanner : public Planner {
 public:
  explicit ForeachPlanner(KernelCache& cache) : cache_(cache), maps_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // A list's element as a call of its own.
  struct Element {
    std::array<Operand, kForeachInputs> inputs;
    std::array<Access, kForeachInputs + 1> access;
    OpCall call;
    int64_t count = 0;
    bool is_line = false;
  };

  void SetElement(const ops::OperandLists& lists, size_t index);
  ForeachKey KeyOf(const ops::OperandLists& lists, const MapPlanner::Line& line) const;
  // Adds the element to the pack, or to a new one.
  absl::Status Join(const ops::OperandLists& lists, size_t index, const MapPlanner::Line& line,
                    const ForeachKey& key, LaunchList& launches);
  absl::Status Add(const ops::OperandLists& lists, size_t index, Workspace workspace, LaunchList& launches);
  // Plans the pack's launch, and empties the pack.
  absl::Status Flush(LaunchList& launches);
  int BlockOf() const;

  KernelCache& cache_;
  MapPlanner maps_;
  const ForeachSkeleton skeleton_;

  // Scratch of the call being planned.
  Element element_;
  ForeachKey key_;  // of the pack
  ForeachArguments<Planned> arguments_;
  PackRanges ranges_;
  int tensors_ = 0;  // in the pack
  int64_t elements_ = 0, units_ = 0;
  uintptr_t addresses_ = 0;  // the bits of all
  bool costly_ = false;
  float nanoseconds_ = 0;
  Readiness readiness_ = Readiness::kReady;
};

}  // namespace xpud::kernels
