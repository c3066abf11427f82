// In what order a body's statements run at one of its points.
//
// A *pass* is a run through the reduced positions, and a *phase* is what runs once: phase 0, pass 0, phase 1,
// .. A reduction ends a pass, or two; what uses its result runs in a later one. Each pass computes the values
// of inner statements again that it needs, but for costly ones where a row's are kept. Stores run as late as
// they can, so that no pass reads what an earlier one has overwritten.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/loops/check.h"
#include "proto/loops/kernel.h"

namespace xpud::kernels {

// How many passes a reduction takes: a mean before the deviations from it, a maximum before the exponentials.
int PassesOf(loops::Reduction reduction);

// Whether a statement costs more than to keep its values in memory and read them again.
bool IsCostly(const loops::Statement& statement);

// How many values of a statement, at most, are kept at a time for a point: its own, and the states of a
// reduction in both of its passes.
int MaxKeptValues(const loops::Statement& statement);

// Whether a statement does something beside giving a value.
bool HasEffect(const loops::Statement& statement);

// The statements of a pass or phase, in order: those that it is for, and those that they need.
using LoopSection = std::vector<bool>;

struct LoopPasses {
  // `keeps_rows`: the values of a statement at all reduced positions can be kept.
  LoopPasses(const loops::Body& body, const loops::BodyInfo& info, bool keeps_rows);

  size_t passes() const { return pass.size(); }
  // Whether all passes can run for a part of the reduced positions, before the phases behind them: no
  // reduction needs another one, and nothing is stored at reduced positions.
  bool can_be_cut = false;

  std::vector<LoopSection> phase, pass;  // one phase more than passes
  // The values that a section uses and that others have made.
  std::vector<std::vector<uint32_t>> phase_uses, pass_uses;
  // Of each reduction: its first pass.
  std::vector<uint32_t> first_pass;
  // The statements whose values are kept, and the pass that makes them.
  std::vector<uint32_t> kept, kept_in;
  // Of each load: an earlier store to the same place, whose value it gives; else kNone.
  std::vector<uint32_t> stored_by;
  // The statements that make the indirect indices of each index node.
  std::vector<std::vector<uint32_t>> indirects;
  // Of each statement of a body without reductions: it has one value for all points along the last dimension.
  std::vector<bool> is_of_line;
  // Whether a store must wait for all of an earlier pass, also for what other lanes do there.
  bool stores_conflict = false;
};

}  // namespace xpud::kernels
