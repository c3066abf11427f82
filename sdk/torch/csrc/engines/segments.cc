#include "sdk/torch/csrc/engines/segments.h"

#include <ATen/ATen.h>

#include "proto/ops/families/segments.h"
#include "sdk/torch/csrc/engines/scatter.h"

namespace xpud::shim {

using at::Tensor;

void ReduceSegments(const ops::Row& row, const Tensor& out, const Tensor& data, const Segments& segments,
                    const OptionalTensor& index, const OptionalTensor& weights, int64_t padding) {
  if (out.numel() == 0) return;
  Send(row,
       ops::SegmentsCall<TensorRef>{.out = Describe(out),
                                    .data = Describe(data),
                                    .begins = Describe(segments.begins),
                                    .ends = Describe(segments.ends),
                                    .index = DescribeIf(index),
                                    .weights = DescribeIf(weights),
                                    .padding_idx = padding},
       data);
}

Tensor SegmentOf(const Tensor& begins, int64_t count) {
  const Tensor marks = at::zeros({count + 1}, begins.options().dtype(at::kLong));
  Scatter(Combination::kAdd, marks, 0, begins, at::Scalar(1));
  return marks.narrow(0, 0, count).cumsum(0).sub_(1);
}

}  // namespace xpud::shim
