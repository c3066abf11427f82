#include "sdk/torch/csrc/command.h"

namespace xpud::shim {

void Send(const ops::Row& row, std::initializer_list<TensorRef> outputs,
          std::initializer_list<TensorRef> inputs, std::span<const ops::Number> attributes,
          const at::Tensor& like) {
  Execute({.row = &row,
           .compute = *ToDType(like.scalar_type()),
           .outputs = outputs,
           .inputs = inputs,
           .attributes = attributes},
          DeviceIndexOf(like));
}

}  // namespace xpud::shim
