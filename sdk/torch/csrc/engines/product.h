// Sends one matrix product. For operators that consist of several.
#pragma once

#include <string_view>
#include <vector>

#include "proto/ops/op_table.h"
#include "sdk/torch/csrc/call/operand.h"

namespace xpud::shim {

inline const ops::Row& ProductRow() {
  static const ops::Row& row = ops::RowOf("mm");
  return row;
}

// out = activation(alpha * a b + beta * c), of matrices (rank 2) or stacks of them (rank 3) of one floating
// type. An absent c is not added; c may be out. Sizes must fit, and none may be 0.
void LaunchProduct(const TensorRef& out, const TensorRef& a, const TensorRef& b, const TensorRef& c,
                   double beta, double alpha, int device,
                   ops::Activation activation = ops::Activation::kNone);

struct NamedActivation {
  std::string_view name;
  ops::Activation activation;
};

// Returns the activations that the device's library computes with a product, without another kernel that
// reads the product.
std::vector<NamedActivation> ActivationsOfProducts(int device);

// Throws a ValueError if there is none of this name.
ops::Activation ActivationNamed(std::string_view name);

}  // namespace xpud::shim
