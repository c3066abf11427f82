// The planners of our own kernels. Each family of proto/ops/families.inc has a factory. It is defined beside
// the family's kernels, in kernels/families/NAME.cc, so that a new family needs no line here.
#pragma once

#include <iterator>
#include <memory>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "proto/ops/op_table.h"

namespace xpud::kernels {

// Returns a planner that uses `cache`, which outlives it. Families with the same factory share a planner.
using PlannerFactory = std::unique_ptr<Planner> (*)(KernelCache& cache);

template <typename T>
std::unique_ptr<Planner> MakePlanner(KernelCache& cache) {
  return std::make_unique<T>(cache);
}

// Null for a family that only kernels/library plans.
#define XPUD_FAMILY(name) extern const PlannerFactory k##name##Planner;
#include "proto/ops/families.inc"
#undef XPUD_FAMILY

inline constexpr const PlannerFactory* kPlanners[] = {
#define XPUD_FAMILY(name) &k##name##Planner,
#include "proto/ops/families.inc"
#undef XPUD_FAMILY
};
static_assert(std::size(kPlanners) == ops::kNumFamilies);

}  // namespace xpud::kernels
