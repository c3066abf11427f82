// The loops of element-wise kernels over a collapsed iteration space (kernels/families/layout.h), shared by
// map and gather.
//
// A host group is a box of the iteration space: group x counts slices of the innermost dimension, y of the
// next, z of all further ones. On a GPU, a lane takes a block of `block` consecutive elements of the
// innermost dimension, or a group takes a tile. In a tile, transposed operands are read along their own
// contiguous dimension.
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
  // Of the operands in memory. Along the innermost dimension, only if their access is kStrided.
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
    int block = 1;        // elements of a lane (GPU)
    std::span<const Access> access;
    // For a tiled kernel on a GPU.
    std::span<const ops::DType> dtypes = {};
    std::span<const Emitted::Pointer> pointers = {};
  };

  BoxEmission(Emitter& emitter, const BoxArguments<Emitted>& arguments, const Space& space)
      : e_(emitter), space_(space), box_(arguments) {}
  virtual ~BoxEmission() = default;

 protected:
  // Emits the loops into the open kernel.
  void EmitLoops();

  // Emits element number `index` of the output; operand o has its element at `offsets[o]`. Returns an i64 to
  // report (0: nothing), or nullptr.
  virtual Value EmitElement(const Values& offsets, Value index) = 0;
  // GPUs: emits elements index .. index + block - 1; `offsets` are those of the first. Called if Space::block
  // > 1.
  virtual Value EmitBlock(const Values& offsets, Value index, int block);
  // Called with the largest reported value, if EmitElement returns one.
  virtual void EmitReport(Value) {}

  int operands() const { return static_cast<int>(space_.access.size()); }
  Access AccessOf(int operand) const { return space_.access[static_cast<size_t>(operand)]; }
  // Returns the bits of a transposed operand's element if its tile is in shared memory, else nullptr.
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

// An operand's properties for PlanBox and BlockOf.
struct BoxOperand {
  Access access = Access::kContiguous;
  ops::DType dtype = ops::DType::kFloat32;
  const void* data = nullptr;
};

// GPUs: returns how many elements of the innermost dimension a lane takes at once. They fill kBlockBytes if
// the layout and the operands' addresses allow it, but are at most 8, or 2 for small tensors. 1 means no
// blocks.
int BlockOf(const Layout& layout, std::span<const BoxOperand> operands);
// GPUs: returns true if tiles pay: all strided operands are contiguous along the last dimension but one.
bool FitsTiles(const Layout& layout, std::span<const BoxOperand> operands);

// How the launched kernel was emitted.
struct BoxCut {
  bool tiled = false;
  int block = 1;
};

// Sets the launch's groups and the space's arguments, which point to the sizes and strides in `layout`.
// `nanoseconds` is the cost of an element.
void PlanBox(Target target, const Layout& layout, std::span<const BoxOperand> operands, BoxCut cut,
             float nanoseconds, BoxArguments<Planned>& arguments, Launch& launch);

}  // namespace xpud::kernels
