#include "proto/ops/family.h"

namespace xpud::ops {

const FamilyDescriptor& DescriptorOf(Family family) {
  static constexpr const FamilyDescriptor* kDescriptors[] = {
#define XPUD_FAMILY(name) &k##name##Family,
#include "proto/ops/families.inc"
#undef XPUD_FAMILY
  };
  static_assert(std::size(kDescriptors) == kNumFamilies);
  return *kDescriptors[static_cast<size_t>(family)];
}

}  // namespace xpud::ops
