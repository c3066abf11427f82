// Launches that serve several tensors of a list: their addresses and sizes are arguments, so that nothing has
// to be uploaded. The tensors' elements are counted in units, one tensor after the other. On the host, a
// group takes a range of units, which may cover many tensors or a part of one. On a GPU, a group takes one
// unit of kGpuUnit elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/api/op_call.h"
#include "kernels/compiler/emitter.h"

namespace xpud::kernels {

inline constexpr int kPackTensors = 63;    // the most of a launch
inline constexpr int kSmallPack = 8;       // short lists have kernels of so many, with fewer arguments
inline constexpr size_t kPackSlots = 8;    // addresses of a tensor
inline constexpr int64_t kGpuUnit = 8192;  // elements

// Returns the elements of a unit of maps.
constexpr int64_t UnitOf(Target target) { return target == Target::kHost ? 1 : kGpuUnit; }

// Returns how many tensors a launch serves, with `slots` arguments of each, and `shared` ones of all.
constexpr int PackCapacity(int slots, int shared, bool small) {
  constexpr int kArguments = Launch::kMaxArguments - 2;
  return small ? kSmallPack : std::min(kPackTensors, (kArguments - shared) / (slots + 1));
}

template <typename Side>
struct PackArguments {
  std::array<std::array<typename Side::Pointer, kPackTensors>, kPackSlots> pointers;
  std::array<typename Side::Integer, kPackTensors> counts;  // elements
  typename Side::Integer tensors, units;                    // units: of a group; host only

  // `capacity` tensors with `slots` addresses each.
  void Visit(int slots, int capacity, auto& visit) {
    for (size_t s = 0; s < static_cast<size_t>(slots); ++s) visit.First(pointers[s], capacity);
    visit.First(counts, capacity);
    visit(tensors, units);
  }
};

// The size of a pack.
struct PackSize {
  Target target = Target::kHost;
  int tensors = 0, slots = 0;
  int64_t elements = 0;
  int64_t units = 0, unit = 1;  // `unit` elements each
  float nanoseconds = 0;        // of an element
};
// Sets the arguments that no tensor has, and the launch's groups.
void FinishPack(const PackSize& size, PackArguments<Planned>& arguments, Launch& launch);

// The memory of the tensors of a pack: its groups run at once, so no tensor may be written that another reads
// or writes. A plain value.
class PackRanges {
 public:
  void Clear() { reads_ = writes_ = 0; }
  // Returns whether the tensors of an element keep apart from those before it.
  bool Fits(std::span<const Operand> outputs, std::span<const Operand> inputs) const;
  void Add(std::span<const Operand> outputs, std::span<const Operand> inputs);

 private:
  struct Range {
    uintptr_t begin = 0, end = 0;
    bool Meets(const Range& other) const { return begin < other.end && other.begin < end; }
  };
  static Range RangeOf(const Operand& operand);
  static bool Meets(const Range& range, const std::vector<Range>& among, size_t count);
  static void Put(const Range& range, std::vector<Range>& to, size_t& count);

  std::vector<Range> read_, written_;
  size_t reads_ = 0, writes_ = 0;
};

// Emits the division of a pack among groups.
class PackEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  // A tensor's part in a group.
  struct Slice {
    Values slots;    // of the tensor: its addresses, then what AddSlot added
    Value count;     // elements
    Value first;     // units of the tensors before it
    Value from, to;  // units of the tensor
  };

  // REQUIRES: the emitter is in the kernel's first block.
  PackEmission(Emitter& emitter, const PackArguments<Emitted>& arguments, int slots, int capacity);

  // Adds an argument that each tensor has.
  template <typename Argument>
  void AddSlot(const std::array<Argument, kPackTensors>& by_tensor) {
    Values values;
    for (size_t t = 0; t < capacity_; ++t) values.push_back(by_tensor[t]);
    AddSlot(std::move(values));
  }
  // Emits `body` for each slice of the group.
  void ForEachSlice(int64_t unit, const std::function<void(const Slice&)>& body);
  // Emits `body` for each tensor, with all of its units. On a GPU, group g takes tensor g.
  void ForEachTensor(int64_t unit, const std::function<void(const Slice&)>& body);
  // Emits a slice's elements on a GPU. A lane takes blocks: each(j, block) is emitted for j .. j + block - 1.
  void ForEachBlock(const Slice& slice, int block, const std::function<void(Value j, int block)>& each);

 private:
  using Choice = std::function<Value(size_t tensor, Value first, Value units)>;
  void AddSlot(Values by_tensor);
  Value Spill(const Values& values);
  Value Reload(Value array, llvm::Type* type, Value index);
  Value UnitsOf(Value count, int64_t unit);
  void HostLoop(int64_t unit, const std::function<void(Slice&)>& body);
  Slice Select(int64_t unit, const Choice& is_mine);

  Emitter& e_;
  const PackArguments<Emitted>& args_;
  const size_t capacity_;
  std::vector<Values> slots_;  // by slot, then by tensor
  Values spilled_;             // host: the slots in memory
  Value counts_ = nullptr;     // host
};

}  // namespace xpud::kernels
