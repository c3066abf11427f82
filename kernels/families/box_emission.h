// The loops of element-wise kernels over a collapsed iteration space (kernels/families/layout.h), written
// once for map and gather.
//
// Arguments, after the skeleton's own: sizes[rank] | for each operand in memory its strides of all but the
// innermost dimension, and of that too if its access is kStrided | slice sizes: inner, and for rank >= 2 rows
// and planes. A host group is a box of the iteration space: group x counts slices of the innermost dimension,
// y of the next, z of all further ones. On a GPU a lane takes a block of `block` consecutive elements of the
// innermost dimension, or a group takes a tile, through which transposed operands are read along their own
// contiguous dimension.
#pragma once

#include <vector>

#include "kernels/compiler/emitter.h"
#include "kernels/families/layout.h"

namespace xpud::kernels {

class BoxEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  struct Space {
    int rank = 1;
    bool tiled = false;
    bool narrow = false;  // 32-bit index arithmetic (GPU)
    int block = 1;        // elements a lane (GPU)
    std::vector<Access> access;
    std::vector<ops::DType> dtypes;  // where tiled on a GPU
  };

  BoxEmission(Emitter& emitter, Space space) : e_(emitter), space_(std::move(space)) {}
  virtual ~BoxEmission() = default;

 protected:
  // Adds the space's arguments to the skeleton's own.
  void AppendArguments(std::vector<ArgType>& args);
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
  Value Size(int dim) const { return e_.Arg(sizes_at_ + static_cast<size_t>(dim)); }
  Value Stride(int operand, int dim);
  Value Slice(size_t axis) const { return e_.Arg(slices_at_ + axis); }
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
  size_t sizes_at_ = 0, slices_at_ = 0;
  std::vector<size_t> strides_at_;
  Values staged_;  // by operand, while an element of a tile is emitted
};

// What PushBox and BlockOf know of an operand.
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

// Pushes the space's arguments and sets the group counts: `nanoseconds` is the cost of an element.
void PushBox(Target target, const Layout& layout, std::span<const BoxOperand> operands, BoxCut cut,
             float nanoseconds, Launch& launch);

}  // namespace xpud::kernels
