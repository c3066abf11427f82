// Convolutions and their gradients, directly: each element of the output is a sum of products. Any layout,
// type, number of groups and target. Vendors' libraries (kernels/library) serve what they can do faster.
//
// An item is an element of the output. Its sum has an outer loop over kernel positions (of the gradient by
// the weight: over the batch and the output's positions), each of which names at most one position of the
// other tensor, and an inner loop over channels. On the host, a group takes a slice of items. On a GPU, a
// lane takes an item; an item of the gradient by the weight, whose sum is long, is shared by the lanes of a
// group. The cut depends only on sizes.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "proto/ops/families/convolution.h"

namespace xpud::kernels {

struct ConvolutionKey {
  const ops::Row* row = nullptr;
  ops::DType type = ops::DType::kFloat32;
  int spatial = 2;
  bool bias = false;

  Scalar accumulate() const { return type == ops::DType::kFloat64 ? Scalar::kF64 : Scalar::kF32; }
  int rank() const { return spatial + 2; }

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(type, 4);
    visit(spatial, 2);
    visit(bias, 1);
  }
};

// A tensor of a convolution: batch or output channels, channels, positions.
template <typename Side>
struct ConvolutionTensor {
  typename Side::Pointer data;
  typename Side::Integers sizes, strides;

  void Visit(const ConvolutionKey& key, auto& visit) {
    visit(data);
    visit.First(sizes, key.rank());
    visit.First(strides, key.rank());
  }
};

template <typename Side>
struct ConvolutionArguments {
  ConvolutionTensor<Side> output, input, weight;
  typename Side::Pointer bias;
  typename Side::Integers stride, padding, dilation;
  typename Side::Integer bias_stride, groups, items, slice;

  void Visit(const ConvolutionKey& key, auto& visit) {
    for (ConvolutionTensor<Side>* const tensor : {&output, &input, &weight}) tensor->Visit(key, visit);
    if (key.bias) visit(bias, bias_stride);
    for (typename Side::Integers* const list : {&stride, &padding, &dilation})
      visit.First(*list, key.spatial);
    visit(groups, items, slice);
  }
};

class ConvolutionSkeleton
    : public SkeletonOf<ConvolutionKey, ops::Family::kConvolution, ConvolutionArguments> {
 public:
  std::string Name(const ConvolutionKey& key) const override { return NameWith("direct_", *key.row); }
  absl::Status EmitBody(const ConvolutionKey& key, const ConvolutionArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class ConvolutionPlanner : public Planner {
 public:
  explicit ConvolutionPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const ConvolutionSkeleton skeleton_;
};

}  // namespace xpud::kernels
