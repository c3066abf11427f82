#include "sdk/torch/csrc/call/list_command.h"

#include <algorithm>

#include "proto/ops/family.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {
namespace {

// The most bytes that the operand takes on the wire.
size_t BytesOf(const TensorRef& operand) {
  return operand.kind == TensorRef::Kind::kTensor ? 24 + 16 * size_t{operand.rank} : 16;
}

}  // namespace

bool IsKnown(const ops::Row& row) {
  const Session* const session = Runtime::Get().session();
  return session == nullptr || ops::Contains(session->rows(), row);
}

bool AreLinesAlike(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.sizes() != like.sizes()) return false;
  if (tensor.is_contiguous() && like.is_contiguous()) return true;
  return tensor.strides() == like.strides() && like.is_non_overlapping_and_dense();
}

ListCommand::ListCommand(const ops::Row& row, ops::DType compute, std::span<const ops::Number> attributes,
                         size_t elements)
    : row_(row), compute_(compute), attributes_(attributes), most_elements_(elements) {
  const ops::FamilyDescriptor& family = ops::DescriptorOf(row);
  lists_.resize(family.outputs.size() + family.inputs.size());
  counts_.reserve(elements * lists_.size());
}

void ListCommand::Share(size_t list, const TensorRef& operand) {
  lists_[list] = {{operand}, true};
  ++shared_;
}

void ListCommand::Add(size_t list, const TensorRef& operand) {
  std::vector<TensorRef>& operands = lists_[list].operands;
  if (operands.empty()) operands.reserve(std::min(most_elements_, ops::kMaxOperands));
  operands.push_back(operand);
  ++operands_;
  bytes_ += BytesOf(operand);
}

TensorRef ListCommand::Line(const at::TensorBase& tensor) {
  counts_.push_back(tensor.numel());
  return DescribeAs(tensor, {&counts_.back(), 1});
}

// The next element is taken to be as large as the largest possible one.
void ListCommand::EndElement(int device) {
  ++elements_;
  const size_t operands = operands_ / elements_;
  const size_t most = operands * (24 + 16 * ops::kMaxRank) + 4096;  // and what is shared
  const bool fits =
      shared_ + operands_ + operands <= ops::kMaxOperands && bytes_ + most <= ops::kMaxCommandBytes;
  if (!fits) Send(device);
}

void ListCommand::Send(int device) {
  if (elements_ == 0) return;
  std::vector<TensorRef> outputs, inputs;
  std::vector<uint16_t> lengths;
  const size_t outputs_end = ops::DescriptorOf(row_).outputs.size();
  outputs.reserve(operands_);
  inputs.reserve(operands_ + shared_);
  for (size_t list = 0; list < lists_.size(); ++list) {
    std::vector<TensorRef>& operands = lists_[list].operands;
    std::vector<TensorRef>& side = list < outputs_end ? outputs : inputs;
    lengths.push_back(static_cast<uint16_t>(operands.size()));
    side.insert(side.end(), operands.begin(), operands.end());
    if (!lists_[list].shared) operands.clear();
  }
  elements_ = operands_ = bytes_ = 0;
  Execute({.row = &row_,
           .compute = compute_,
           .outputs = outputs,
           .inputs = inputs,
           .attributes = attributes_,
           .lists = lengths},
          device);
}

}  // namespace xpud::shim
