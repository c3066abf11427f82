#include "kernels/library/convolution/convolution_problem.h"

#include <algorithm>

namespace xpud::kernels::convolution {
namespace {

// A list of the call in the problem: a single spatial dimension is the second of two.
void SetList(ConvolutionProblem::List& to, const int64_t* from, int spatial, int64_t other) {
  to.fill(0);
  if (spatial == 1) {
    to[0] = other;
    to[1] = from[0];
  } else {
    std::copy(from, from + spatial, to.begin());
  }
}

}  // namespace

ConvolutionProblem ReadProblem(const ops::Convolution& c, ops::Family direction, ops::DType type) {
  ConvolutionProblem p;
  p.batch = c.batch();
  p.groups = c.groups;
  p.input_channels = c.input_channels();
  p.output_channels = c.output_channels();
  p.spatial = std::max(c.spatial, 2);
  SetList(p.input, c.input->sizes.data() + 2, c.spatial, 1);
  SetList(p.output, c.output->sizes.data() + 2, c.spatial, 1);
  SetList(p.kernel, c.weight->sizes.data() + 2, c.spatial, 1);
  SetList(p.stride, c.stride.data(), c.spatial, 1);
  SetList(p.padding, c.padding.data(), c.spatial, 0);
  SetList(p.dilation, c.dilation.data(), c.spatial, 1);
  p.direction = direction;
  p.type = type;
  return p;
}

Operand Dense(const Operand& like, ops::DType type, Layout layout, void* data) {
  Operand operand = like;
  operand.dtype = type;
  operand.data = data;
  operand.content = 0;
  const bool last = layout == Layout::kChannelsLast && like.rank > 1;
  int64_t next = 1;
  if (last) {
    operand.strides[1] = 1;
    next = like.sizes[1];
  }
  for (int d = like.rank - 1; d >= 0; --d) {
    if (last && d == 1) continue;
    operand.strides[static_cast<size_t>(d)] = next;
    next *= like.sizes[static_cast<size_t>(d)];
  }
  return operand;
}

bool IsDense(const Operand& operand, ops::DType type, Layout layout) {
  const Operand wanted = Dense(operand, type, layout, operand.data);
  bool same = operand.dtype == type;
  for (size_t d = 0; d < operand.rank; ++d)
    same &= operand.sizes[d] == 1 || operand.strides[d] == wanted.strides[d];
  return same;
}

}  // namespace xpud::kernels::convolution
