#include "sdk/torch/csrc/call/matrix.h"

#include <algorithm>

namespace xpud::shim {

void LaunchMap(const ops::Row& row, std::initializer_list<Matrix> outputs,
               std::initializer_list<Matrix> inputs, int device) {
  std::array<TensorRef, ops::kMaxOutputs> outs;
  std::array<TensorRef, ops::kMaxInputs> ins;
  std::ranges::transform(outputs, outs.begin(), [](const Matrix& matrix) { return matrix.Ref(); });
  std::ranges::transform(inputs, ins.begin(), [](const Matrix& matrix) { return matrix.Ref(); });
  Execute({.row = &row,
           .compute = outputs.begin()->dtype(),
           .outputs = {outs.data(), outputs.size()},
           .inputs = {ins.data(), inputs.size()},
           .attributes = {}},
          device);
}

}  // namespace xpud::shim
