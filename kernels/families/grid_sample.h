// Samples of planes at the positions of a grid, and the gradients of planes and grid.
//
// A sample is a weighted sum over the elements around its position: 1, 2 or 4 for each dimension. Positions
// and weights are computed once for all channels. The host takes vectors of neighbouring samples and gathers
// their elements. In the gradient of the planes, the samples of a plane are added one after the other, so
// results do not depend on the number of workers; on a GPU a lane takes a plane.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"

namespace xpud::kernels {

enum class GridMode : uint8_t { kLinear = 0, kNearest = 1, kCubic = 2 };
enum class GridPadding : uint8_t { kZeros = 0, kBorder = 1, kReflection = 2 };
enum class GridPart : uint8_t { kSample = 0, kGridGradient = 1, kInputGradient = 2 };

struct GridSampleKey {
  ops::DType type = ops::DType::kFloat32;
  GridPart part = GridPart::kSample;
  GridMode mode = GridMode::kLinear;
  GridPadding padding = GridPadding::kZeros;
  bool align_corners = false;
  bool volumes = false;  // three spatial dimensions
  bool vectors = false;  // kSample on the host: rows of the output are contiguous

  int spatial() const { return volumes ? 3 : 2; }

  void Visit(auto& visit) {
    visit(type, 4);
    visit(part, 2);
    visit(mode, 2);
    visit(padding, 2);
    for (bool* const flag : {&align_corners, &volumes, &vectors}) visit(*flag, 1);
  }
};

// Strides: batch, channel, z, y, x; of a grid: batch, z, y, x, component. Planes have z = 0.
template <typename Side>
struct GridSampleArguments {
  using Five = std::array<typename Side::Integer, 5>;
  using Three = std::array<typename Side::Integer, 3>;
  typename Side::Pointer result, input, grid, gradient;
  Five result_strides, input_strides, grid_strides, gradient_strides;
  Three in, out;
  typename Side::Integer channels, channel_slice, count, slice;

  void Visit(const GridSampleKey&, auto& visit) {
    visit(result, input, grid, gradient);
    for (Five* const each : {&result_strides, &input_strides, &grid_strides, &gradient_strides})
      visit.First(*each, 5);
    visit.First(in, 3);
    visit.First(out, 3);
    visit(channels, channel_slice, count, slice);
  }
};

class GridSampleSkeleton : public SkeletonOf<GridSampleKey, ops::Family::kGridSample, GridSampleArguments> {
 public:
  std::string Name(const GridSampleKey& key) const override {
    return key.part == GridPart::kSample         ? "grid_sample"
           : key.part == GridPart::kGridGradient ? "grid_sample_backward_grid"
                                                 : "grid_sample_backward_input";
  }
  absl::Status EmitBody(const GridSampleKey& key, const GridSampleArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class GridSamplePlanner : public Planner {
 public:
  explicit GridSamplePlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const GridSampleSkeleton skeleton_;
};

}  // namespace xpud::kernels
