// Resampling: linear maps along dimensions of a tensor, each a pass of its own. The dimension that shrinks
// the tensor most is first; temporaries between the passes have the type in which the map computes.
//
// A pass has two kernels. The first writes a table to the workspace: which elements an output reads, and
// their weights. The gradient of a map is the same pass with the table of the outputs that read an element,
// so it adds in a fixed order. The second kernel applies the table: out[item, o] = sum over t of weights[t,
// o] * in[item, positions[t, o]]. The host takes vectors of neighbouring items, or of neighbouring outputs
// whose inputs it gathers.
#pragma once

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/space.h"
#include "proto/ops/families/windows.h"

namespace xpud::kernels {

// The element type of weights.
constexpr ops::DType TypeOfReal(Scalar real) {
  return real == Scalar::kF64 ? ops::DType::kFloat64 : ops::DType::kFloat32;
}

struct ResampleTableKey {
  ops::ResampleKind kind = ops::ResampleKind::kNearest;
  Scalar real = Scalar::kF32;
  bool transposed = false;
  bool half_pixel = false;
  bool include_padding = false;

  void Visit(auto& visit) {
    visit(kind, 4);
    visit(real, 4);
    for (bool* const flag : {&transposed, &half_pixel, &include_padding}) visit(*flag, 1);
  }
};

// Positions are int32, and -1 for no element. Entry (t, o) of a table is at t * rows + o.
template <typename Side>
struct ResampleTableArguments {
  typename Side::Pointer positions, weights;
  typename Side::Integer in, out, kernel, stride, padding, taps, slice, margin;
  typename Side::Immediate scale, support, inverse, low, shift;

  void Visit(const ResampleTableKey& key, auto& visit) {
    visit(positions, weights, in, out, kernel, stride, padding, taps, slice, margin);
    visit.Immediate(scale, key.real);
    visit.Immediate(support, key.real);
    for (auto* const each : {&inverse, &low, &shift}) visit.Immediate(*each, Scalar::kF64);
  }
};

enum class PassForm : uint8_t {
  kItems,    // vectors of neighbouring items
  kOutputs,  // vectors of neighbouring outputs
  kElements,
};

struct ResamplePassKey {
  ops::DType input = ops::DType::kFloat32;
  ops::DType output = ops::DType::kFloat32;
  Scalar real = Scalar::kF32;
  bool copies = false;    // the type is an integer of the element's size; there are no weights
  bool adjacent = false;  // the elements along the dimension are contiguous in the input
  PassForm form = PassForm::kElements;
  int taps = 0;  // if few, else 0
  int rank = 1;  // of the items

  void Visit(auto& visit) {
    visit(input, 4);
    visit(output, 4);
    visit(real, 4);
    visit(copies, 1);
    visit(adjacent, 1);
    visit(form, 2);
    visit(taps, 3);
    visit(rank, 4);
  }
};

template <typename Side>
struct ResamplePassArguments {
  typename Side::Pointer out, in, positions, weights;
  SpaceArguments<Side, 2> items;  // out, in
  typename Side::Integer out_stride, in_stride, rows, taps, count, slice;

  void Visit(const ResamplePassKey& key, auto& visit) {
    visit(out, in, positions, weights);
    items.Visit(key.rank, 2, visit);
    visit(out_stride, in_stride, rows, taps, count, slice);
  }
};

class ResampleTableSkeleton
    : public SkeletonOf<ResampleTableKey, ops::Family::kResample, ResampleTableArguments> {
 public:
  std::string Name(const ResampleTableKey&) const override { return "resample_table"; }
  absl::Status EmitBody(const ResampleTableKey& key, const ResampleTableArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

class ResamplePassSkeleton
    : public SkeletonOf<ResamplePassKey, ops::Family::kResample, ResamplePassArguments, 1> {
 public:
  std::string Name(const ResamplePassKey&) const override { return "resample"; }
  absl::Status EmitBody(const ResamplePassKey& key, const ResamplePassArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class ResamplePlanner : public Planner {
 public:
  explicit ResamplePlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  struct Pass;
  absl::StatusOr<bool> FindKernels(Pass& pass);
  void AddLaunches(const Pass& pass, LaunchList& launches);

  KernelCache& cache_;
  const ResampleTableSkeleton table_;
  const ResamplePassSkeleton pass_;
};

}  // namespace xpud::kernels
