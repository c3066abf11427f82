// Max pooling with positions, its gradient, and the inverse that puts elements back at their positions.
//
// An item is a plane; spatial dimensions that a call lacks have size 1. The host takes vectors of
// neighbouring planes (channels last), or of neighbouring elements of a row, whose inputs it gathers. The
// gradient also gathers: an element adds the gradients of the windows that have its position, in order.
// Max_unpool writes the elements of a plane in order, so the last of equal positions wins; on a GPU a lane
// takes a plane.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/space.h"
#include "proto/ops/families/max_pool.h"
#include "proto/ops/families/windows.h"

namespace xpud::kernels {

enum class PlaneForm : uint8_t {
  kPlanes,  // vectors of neighbouring planes
  kRows,    // vectors of neighbouring elements of a row
  kElements,
};

struct MaxPoolKey {
  ops::DType type = ops::DType::kFloat32;
  bool backward = false;
  bool adaptive = false;
  bool dilated = false;
  PlaneForm form = PlaneForm::kElements;
  std::array<bool, 2> adjacent{};  // kRows: rows of indices and input are contiguous
  int rank = 1;                    // of the planes

  void Visit(auto& visit) {
    visit(type, 4);
    visit(backward, 1);
    visit(adaptive, 1);
    visit(dilated, 1);
    visit(form, 2);
    for (bool& flag : adjacent) visit(flag, 1);
    visit(rank, 4);
  }
};

template <typename Side>
using PerDimension = std::array<typename Side::Integer, ops::kMaxSpatial>;

// Operands: the result, indices, and the tensor that windows read.
template <typename Side>
struct MaxPoolArguments {
  std::array<typename Side::Pointer, 3> operands;
  SpaceArguments<Side, 3> planes;
  std::array<PerDimension<Side>, 3> strides;
  PerDimension<Side> in, out, kernel, stride, padding, dilation;
  typename Side::Integer taps, count, slice;  // taps: elements of a window in a row, at most

  void Visit(const MaxPoolKey& key, auto& visit) {
    visit.First(operands, 3);
    planes.Visit(key.rank, 3, visit);
    for (auto& each : strides) visit.First(each, ops::kMaxSpatial);
    for (auto* const each : {&in, &out, &kernel, &stride, &padding, &dilation})
      visit.First(*each, ops::kMaxSpatial);
    visit(taps, count, slice);
  }
};

struct MaxUnpoolKey {
  ops::DType element = ops::DType::kUInt8;  // an integer type of the element's size
  ops::DType index = ops::DType::kInt64;
  int rank = 1;

  void Visit(auto& visit) {
    visit(element, 4);
    visit(index, 4);
    visit(rank, 4);
  }
};

// Operands: out, self, indices.
template <typename Side>
struct MaxUnpoolArguments {
  std::array<typename Side::Pointer, 3> operands;
  typename Side::Pointer error_word;
  SpaceArguments<Side, 3> planes;
  std::array<PerDimension<Side>, 3> strides;
  PerDimension<Side> sizes, out_sizes;
  typename Side::Integer count, slice;

  void Visit(const MaxUnpoolKey& key, auto& visit) {
    visit.First(operands, 3);
    visit(error_word);
    planes.Visit(key.rank, 3, visit);
    for (auto& each : strides) visit.First(each, ops::kMaxSpatial);
    visit.First(sizes, ops::kMaxSpatial);
    visit.First(out_sizes, ops::kMaxSpatial);
    visit(count, slice);
  }
};

class MaxPoolSkeleton : public SkeletonOf<MaxPoolKey, ops::Family::kMaxPool, MaxPoolArguments> {
 public:
  std::string Name(const MaxPoolKey& key) const override {
    return key.backward ? "max_pool_backward" : "max_pool";
  }
  absl::Status EmitBody(const MaxPoolKey& key, const MaxPoolArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

class MaxUnpoolSkeleton : public SkeletonOf<MaxUnpoolKey, ops::Family::kMaxUnpool, MaxUnpoolArguments> {
 public:
  std::string Name(const MaxUnpoolKey&) const override { return "max_unpool"; }
  absl::Status EmitBody(const MaxUnpoolKey& key, const MaxUnpoolArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class MaxPoolPlanner : public Planner {
 public:
  explicit MaxPoolPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // Either direction: `result` is the values, or the gradient of the input; `read` the input, or the gradient
  // of the values.
  struct Pool {
    const ops::MaxPoolAttributes& attributes;
    const Operand &result, &indices, &read;
    bool backward;
  };
  absl::StatusOr<Readiness> PlanPool(const Pool& pool, LaunchList& launches);
  absl::StatusOr<Readiness> PlanUnpool(const OpCall& call, LaunchList& launches);

  KernelCache& cache_;
  const MaxPoolSkeleton pool_;
  const MaxUnpoolSkeleton unpool_;
};

}  // namespace xpud::kernels
