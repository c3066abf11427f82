// Windows of images as columns, and the sums that make images of columns.
//
// An item is a row of the result: one of columns [N, C, kernel's rows, kernel's columns, output rows], or of
// an image [N, C, H]. Unfolding copies the part of a row that lies in the image, and writes zeros beside it.
// Folding gathers: an element adds the windows that cover it, in the order of the kernel's elements. The host
// takes vectors of neighbouring elements. On a GPU a lane takes an element.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "proto/ops/families/windows.h"

namespace xpud::kernels {

struct UnfoldKey {
  ops::DType type = ops::DType::kFloat32;  // unfolding: an integer type of the element's size
  bool folds = false;
  bool steps = false;              // the windows' stride along a row is not 1
  bool vector = false;             // host: vectors of a result's row, which is contiguous
  std::array<bool, 2> adjacent{};  // elements of a row are neighbours, of the image and of the columns

  void Visit(auto& visit) {
    visit(type, 4);
    for (bool* const flag : {&folds, &steps, &vector, &adjacent[0], &adjacent[1]}) visit(*flag, 1);
  }
};

template <typename Side>
struct UnfoldArguments {
  typename Side::Pointer image, columns;
  std::array<typename Side::Integer, 4> image_strides;    // N, C, H, W
  std::array<typename Side::Integer, 3> columns_strides;  // N, C * kernel, windows
  std::array<typename Side::Integer, 2> in, out, kernel, dilation, padding, stride;
  typename Side::Integer channels, count, slice;  // count: of rows, or elements on a GPU

  void Visit(const UnfoldKey&, auto& visit) {
    visit(image, columns);
    visit.First(image_strides, 4);
    visit.First(columns_strides, 3);
    for (auto* const each : {&in, &out, &kernel, &dilation, &padding, &stride}) visit.First(*each, 2);
    visit(channels, count, slice);
  }
};

class UnfoldSkeleton : public SkeletonOf<UnfoldKey, ops::Family::kUnfold, UnfoldArguments> {
 public:
  std::string Name(const UnfoldKey& key) const override { return key.folds ? "fold" : "unfold"; }
  absl::Status EmitBody(const UnfoldKey& key, const UnfoldArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class UnfoldPlanner : public Planner {
 public:
  explicit UnfoldPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const UnfoldSkeleton skeleton_;
};

}  // namespace xpud::kernels
