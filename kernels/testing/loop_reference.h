// Runs loop kernels (proto/loops) statement by statement in long double and 64-bit integers. The tests
// compare compiled kernels with it. Used by one thread.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/testing/tensor.h"
#include "proto/loops/check.h"
#include "proto/loops/kernel.h"

namespace xpud::kernels {

class LoopReference {
 public:
  // What a call fails with: an index that is outside, or an assertion.
  struct Failure {
    size_t body = 0, statement = 0;
    int64_t index = 0;
  };

  // REQUIRES: the kernel is checked, and outlives this object.
  LoopReference(const loops::Kernel& kernel, const loops::KernelInfo& info) : kernel_(kernel), info_(info) {}

  // Tensors of one dimension, one for each operand; scalars have one element. Where an index is outside,
  // nothing is read or written, and a value is 0. Returns what CheckCall returns.
  absl::Status Run(std::span<const int64_t> sizes, std::span<TestTensor* const> operands);

  // The first of the last run.
  const std::optional<Failure>& failure() const { return failure_; }
  // The largest finite magnitude of a value: the scale of rounding errors.
  Exact magnitude() const { return magnitude_; }

 private:
  class BodyRun;

  const loops::Kernel& kernel_;
  const loops::KernelInfo& info_;
  std::optional<Failure> failure_;
  Exact magnitude_ = 0;
};

}  // namespace xpud::kernels
