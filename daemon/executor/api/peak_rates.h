// How fast a device can be.
#pragma once

#include <cstdint>

namespace xpud::executor {

// What it can do in a second at its usual clock, as its maker says; 0: not known. A multiplication with its
// addition is one operation.
struct PeakRates {
  uint64_t memory_bytes = 0;
  uint64_t float_operations = 0;  // on float32
  uint64_t half_operations = 0;   // on float16 and bfloat16
};

}  // namespace xpud::executor
