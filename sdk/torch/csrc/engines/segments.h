// Reductions of segments of rows. Bags of embeddings build on them.
#pragma once

#include <ATen/core/Tensor.h>

#include "sdk/torch/csrc/call/command.h"

namespace xpud::shim {

// Segment b has positions begins[b] to ends[b] - 1.
struct Segments {
  at::Tensor begins, ends;  // int64 or int32, of one dimension
};

// Reduces rows of data [V, D] into row b of out [B, D] for each segment, by `row` ("xpud::segment_sum", ..).
// Rows of out without elements keep their values. A position is a row of data, or an entry of `index`; it is
// skipped if its row is `padding`. A row is multiplied by its position's weight.
void ReduceSegments(const ops::Row& row, const at::Tensor& out, const at::Tensor& data,
                    const Segments& segments, const OptionalTensor& index = std::nullopt,
                    const OptionalTensor& weights = std::nullopt, int64_t padding = -1);

// Returns, for each of `count` positions, the last segment that begins up to there (int64), or -1.
at::Tensor SegmentOf(const at::Tensor& begins, int64_t count);

}  // namespace xpud::shim
