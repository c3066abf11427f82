// The elements of a pack's tensors, each a line of memory: loads some operands, computes, and stores others.
#pragma once

#include <vector>

#include "kernels/compiler/lowering.h"
#include "kernels/families/pack.h"

namespace xpud::kernels {

class LineEmission {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  // An operand that is a line. Its address is a slot of the pack.
  struct Stream {
    size_t slot = 0;
    ops::DType dtype = ops::DType::kFloat32;
    bool load = false, store = false;
  };

  // `compute`: the type of loaded elements. `block`: elements of a GPU's lane.
  LineEmission(Emitter& emitter, std::vector<Stream> streams, Scalar compute, int block)
      : e_(emitter), streams_(std::move(streams)), compute_(compute), block_(block) {}
  virtual ~LineEmission() = default;

 protected:
  // Emits the loops into the open kernel.
  void EmitLines(PackEmission& pack);

  // Called before the elements of a slice.
  virtual void Begin(const PackEmission::Slice&) {}
  // Computes one element. `loaded` and the result have an entry for each stream that is loaded or stored.
  virtual std::vector<Typed> Element(const Values& loaded) = 0;
  // Returns whether (i1) the last element is to be reported, or nullptr.
  virtual Value Reported() { return nullptr; }
  // Reports if `any` (i1).
  virtual void EmitReport(Value /*any*/) {}

  Emitter& e_;

 private:
  void EmitSlice(const PackEmission::Slice& slice);
  void EmitBlock(const PackEmission::Slice& slice, Value j, int block);

  const std::vector<Stream> streams_;
  const Scalar compute_;
  const int block_;
};

}  // namespace xpud::kernels
