// In what order a body's statements run at one of its points.
//
// A *pass* is a run through the reduced positions, and a *phase* is what runs once: phase 0, pass 0, phase 1,
// .. A reduction ends a pass, or two; what uses its result runs in a later one. Values of inner statements
// are not kept: each pass computes what it needs again. Stores run as late as they can, so that no pass reads
// what an earlier one has overwritten.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/loops/check.h"
#include "proto/loops/kernel.h"

namespace xpud::kernels {

// How many passes a reduction takes: a mean before the deviations from it, a maximum before the exponentials.
int PassesOf(loops::Reduction reduction);

// The statements of a pass or phase, in order: those that it is for, and those that they need.
using LoopSection = std::vector<bool>;

struct LoopPasses {
  LoopPasses(const loops::Body& body, const loops::BodyInfo& info);

  size_t passes() const { return pass.size(); }

  std::vector<LoopSection> phase, pass;  // one phase more than passes
  // Of each reduction: its first pass.
  std::vector<uint32_t> first_pass;
  // Of each load: an earlier store to the same place, whose value it gives; else kNone.
  std::vector<uint32_t> stored_by;
  // The statements that make the indirect indices of each index node.
  std::vector<std::vector<uint32_t>> indirects;
  // Whether a store must wait for all of an earlier pass, also for what other lanes do there.
  bool stores_conflict = false;
};

}  // namespace xpud::kernels
