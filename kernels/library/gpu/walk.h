// How the groups of a kernel share its items, when there are as many groups as multiprocessors. Device code
// only.
#pragma once

#include "kernels/library/gpu/device.h"
#include "kernels/library/gpu/position.h"

namespace xpud::gpu {

// Iterates over a group's items: blocks of heads. If blocks differ in length, those with lower numbers must
// be longer, and groups take long ones first, in alternating order. They do so within the blocks of a few
// heads at a time, so that what these blocks share stays in the cache. This is the smallest number of heads
// that gives all groups the same number of items.
class Walk {
 public:
  // `head_bytes`: what the blocks of a head share.
  XPUD_DEVICE_MEMBER Walk(int blocks, int heads, int64_t head_bytes, bool differ)
      : blocks_(blocks), heads_(heads), differ_(differ) {
    constexpr int64_t kCacheBytes = 64 << 20;
    const int groups = static_cast<int>(GroupsX()), even = groups / CommonDivisor(blocks, groups);
    const int cached = static_cast<int>(Quotient(kCacheBytes, Least(head_bytes, kCacheBytes + 1))) + 1;
    section_ = Least(heads, Least(even, cached));
    Read(static_cast<int>(GroupX()));
  }

  XPUD_DEVICE_MEMBER void Next() {
    const int groups = static_cast<int>(GroupsX()), group = static_cast<int>(GroupX());
    ++number_;
    Read(number_ * groups + (differ_ && number_ % 2 != 0 ? groups - 1 - group : group));
  }

  bool done;
  int head, block;

 private:
  static XPUD_DEVICE_MEMBER int CommonDivisor(int a, int b) {
    while (b != 0) {
      const int rest = a % b;
      a = b;
      b = rest;
    }
    return a;
  }

  XPUD_DEVICE_MEMBER void Read(int at) {
    done = at >= blocks_ * heads_;
    if (done) return;
    head = at / blocks_;
    block = at % blocks_;
    if (differ_) {
      const int begin = at / (section_ * blocks_) * section_, size = Least(section_, heads_ - begin);
      const int rest = at - begin * blocks_;
      head = begin + rest % size;
      block = rest / size;
    }
  }

  int blocks_, heads_, section_;
  int number_ = 0;
  bool differ_;
};

}  // namespace xpud::gpu
