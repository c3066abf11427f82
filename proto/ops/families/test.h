// Kernels that misbehave, for tests of the daemon: out[S] (in place) <- self, the same tensor, with at least
// one element. `groups`: how many groups run.
#pragma once

#include <cstdint>

#include "proto/ops/named_call.h"

namespace xpud::ops {

template <typename T>
struct TestCall {
  T out{}, self{};
  int64_t groups = 1;

  static constexpr void Visit(auto& named, auto& visitor) {
    visitor.Output(named.out, "out", kUpdated);
    visitor.Input(named.self, "self");
    visitor.Attribute(named.groups, "groups", 1);
  }
};

}  // namespace xpud::ops
