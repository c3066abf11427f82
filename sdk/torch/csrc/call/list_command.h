// Commands of families whose operands are corresponding tensor lists: one command for as many elements as the
// wire allows. Used by one thread, for one call.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

// Returns true if the daemon knows the row.
bool IsKnown(const ops::Row& row);

// Returns true if the tensors have the same sizes, and their elements, without gaps, the same order in
// memory.
bool AreLinesAlike(const at::Tensor& tensor, const at::Tensor& like);

class ListCommand {
 public:
  // At most `elements` will be added. `attributes` must outlive the command.
  ListCommand(const ops::Row& row, ops::DType compute, std::span<const ops::Number> attributes,
              size_t elements);

  // Adds an operand that serves all elements. Before the elements.
  void Share(size_t list, const TensorRef& operand);
  // Adds an operand of the element. Lists are numbered by the family's outputs, then its inputs.
  void Add(size_t list, const TensorRef& operand);
  // Describes a tensor without gaps as one dimension. REQUIRES: it is of the element, and its dtype is of the
  // wire.
  TensorRef Line(const at::TensorBase& tensor);
  // Ends the element. May send those before.
  void EndElement(int device);
  // Sends the elements that were not sent.
  void Send(int device);

 private:
  struct List {
    std::vector<TensorRef> operands;
    bool shared = false;
  };

  const ops::Row& row_;
  const ops::DType compute_;
  const std::span<const ops::Number> attributes_;
  const size_t most_elements_;
  std::vector<List> lists_;
  std::vector<int64_t> counts_;                   // never reallocated: descriptors point to them
  size_t elements_ = 0;                           // not sent
  size_t shared_ = 0, operands_ = 0, bytes_ = 0;  // of these elements, except shared ones
};

}  // namespace xpud::shim
