// What a group of a kernel works on. Device code only.
#pragma once

#include "kernels/library/gpu/device.h"

namespace xpud::gpu {

// The quotient of numbers from 0 to 2^32. Dividing 64-bit numbers is a call of a function, which costs the
// kernel registers.
XPUD_DEVICE int64_t Quotient(int64_t a, int64_t b) {
  return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
}

// What is the `at`-th of all, if each head of a batch of `heads` heads has `size`.
struct Position {
  int64_t at, h, b;
};
XPUD_DEVICE Position PositionOf(int64_t at, int64_t size, int64_t heads) {
  const int64_t head = Quotient(at, size), b = Quotient(head, heads);
  return {at - head * size, head - b * heads, b};
}

}  // namespace xpud::gpu
