// The loops of element-wise kernels over a collapsed iteration space (kernels/families/layout.h), written
// once for map and gather.
//
// A host group is a box of the iteration space: group x counts slices of the innermost dimension, y of the
// next, z of all further ones. On a GPU a lane takes a block of `block` consecutive elements of the innermost
// dimension, or a group takes a tile, through which transposed operands are read along their own contiguous
// dimension.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "kernels/compiler/emitter.h"
#include "kernels/families/layout.h"

namespace xpud::kernels {

// The last arguments of a kernel over a space of dimension `rank`.
template <typename Side>
struct BoxArguments {
  typename Side::Integers sizes;
  // Of the operands in memory; along the innermost dimension only where their access is kStrided.
  std::array<typename Side::Integers, kMaxOperands> strides;
  typename Side::Integer inner_slice, row_slice, plane_slice;  // 0 on GPUs

  [[gnu::always_inline]] void Visit(int rank, std::span<const Access> access, auto& visit) {
    visit.First(sizes, rank);
    for (size_t o = 0; o < access.size(); ++o) {
      if (access[o] != Access::kImmediate)
        visit.First(strides[o], access[o] == Access::kStrided ? rank : rank - 1);
    }
    visit(inner_slice);
    if (rank > 1) visit(row_slice, plane_slice);
  }
};

class BoxEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  struct Space {
    int rank = 1;
    bool tiled = false;
    bool narrow = false;  // 32-bit index arithmetic (GPU)
    int block = 1;        // elements a lane (GPU)
    std::span<const Access> access;
    // Where tiled on a GPU.
    std::span<const ops::DType> dtypes = {};
    std::span<const Emitted::Pointer> pointers = {};
  };

  BoxEmission(Emitter& emitter, const BoxArguments<Emitted>& arguments, const Space& space)
      : e_(emitter), space_(space), box_(arguments) {}
  virtual ~BoxEmission() = default;

 protected:
  // Emits the loops; the kernel is open.
  void EmitLoops();

  // The element at `offsets[o]` of each operand, number `index` of the output. Gives an i64 to report (0:
  // nothing), or nullptr.
  virtual Value EmitElement(const Values& offsets, Value index) = 0;
  // GPUs: elements index .. index + block - 1, `offsets` those of the first. Where Space::block > 1.
  virtual Value EmitBlock(const Values& offsets, Value index, int block);
  // Called with the largest reported value, where EmitElement gives one.
  virtual void EmitReport(Value) {}

  int operands() const { return static_cast<int>(space_.access.size()); }
  Access AccessOf(int operand) const { return space_.access[static_cast<size_t>(operand)]; }
  // The bits of a transposed operand's element, when its tile is in shared memory, or nullptr.
  Value Staged(int operand) const {
    return staged_.empty() ? nullptr : staged_[static_cast<size_t>(operand)];
  }
  bool InMemory(int operand) const { return AccessOf(operand) != Access::kImmediate; }

  Emitter& e_;

 private:
  Value Size(int dim) const { return box_.sizes[static_cast<size_t>(dim)]; }
  Value Stride(int operand, int dim);
  Value End(Value begin, Value slice, Value size) { return e_.Min(e_.Add(begin, slice), size); }
  Values OffsetsAt(const Values& base, Value j);
  Values BaseOf(Value outer);
  void Step(Values& base, int dim, Value at);
  void EmitLine();
  void EmitBox();
  void EmitInner(const Values& base, Value first, Value begin, Value end);
  void EmitThread();
  void EmitThreadOfLine(Value index);
  void EmitThreadOfBox(Value index);
  void Report(Value code) {
    if (code != nullptr) EmitReport(code);
  }
  void EmitTile();
  std::vector<Value> StageTile(const Values& base, Value tile_row, Value tile_column);
  Value TileOffset(const Values& base, int operand, Value row, Value column);

  const Space space_;
  const BoxArguments<Emitted>& box_;
  Values staged_;  // by operand, while an element of a tile is emitted
};

// What PlanBox and BlockOf know of an operand.
struct BoxOperand {
  Access access = Access::kContiguous;
  ops::DType dtype = ops::DType::kFloat32;
  const void* data = nullptr;
};

// GPUs: how many elements of the innermost dimension a lane may take at once: as many as fill kBlockBytes,
// where the layout and the operands' addresses allow it. 1: none.
int BlockOf(const Layout& layout, std::span<const BoxOperand> operands);
// GPUs: true where tiles are worth it: every strided operand is contiguous along the last dimension but one.
bool FitsTiles(const Layout& layout, std::span<const BoxOperand> operands);

// How the kernel that is launched was emitted.
struct BoxCut {
  bool tiled = false;
  int block = 1;
};

// Fills the space's arguments, but for `layout`'s sizes and strides, which stay there, and sets the launch's
// groups. `nanoseconds` is the cost of an element.
void PlanBox(Target target, const Layout& layout, std::span<const BoxOperand> operands, BoxCut cut,
             float nanoseconds, BoxArguments<Planned>& arguments, Launch& launch);

}  // namespace xpud::kernels
