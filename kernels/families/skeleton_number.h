// Numbers of the skeletons: the low 8 bits of a kernel's key.
#pragma once

#include <cstdint>

namespace xpud::kernels {

enum class SkeletonNumber : uint8_t {
  kMap = 1,
  kReduce = 2,
  kReduceMerge = 3,
  kSoftmax = 4,
  kLayerNorm = 6,
  kLayerNormBackward = 7,
  kLayerNormMerge = 8,
  kGather = 9,
  kScatterAdd = 10,
  kNllForward = 11,
  kNllBackward = 12,
  kMisbehaving = 13,
  kScan = 14,
};

}  // namespace xpud::kernels
