// Doubles three numbers on the device, using only the installed package.
#include <cstdio>
#include <vector>

#include "xpud/tensor.h"
#include "xpud/xpud.h"

int main() {
  const auto session = xpud::Session::Connect({});
  if (!session.ok()) {
    std::fprintf(stderr, "%s\n", session.status().ToString().c_str());
    return 1;
  }
  const std::vector<float> values = {1, 2, 3};
  const auto tensor = xpud::Tensor::FromHost((*session)->DefaultQueue(0), values, {3});
  const auto doubled = tensor.ok() ? xpud::Mul(*tensor, 2.0) : tensor;
  const auto floats = doubled.ok() ? doubled->ToFloats() : doubled.status();
  if (!floats.ok()) {
    std::fprintf(stderr, "%s\n", floats.status().ToString().c_str());
    return 1;
  }
  return *floats == std::vector<float>{2, 4, 6} ? 0 : 1;
}
