#include "kernels/loops/passes.h"

#include <algorithm>
#include <iterator>

#include "kernels/families/op_cost.h"
#include "kernels/loops/functions.h"

namespace xpud::kernels {
namespace {

using loops::Body;
using loops::IndexNode;
using loops::IndexOp;
using loops::kNone;
using loops::Reduction;
using loops::Statement;
using loops::StatementKind;
using ops::DType;

bool Stores(const Statement& s) {
  return s.kind == StatementKind::kStore || s.kind == StatementKind::kAtomicAdd;
}

class Scheduler {
 public:
  Scheduler(const Body& body, const loops::BodyInfo& info, LoopPasses& to)
      : body_(body), info_(info), to_(to), count_(static_cast<uint32_t>(body.statements.size())) {}

  void Run(bool keeps_rows) {
    FindIndirects();
    FindStoredValues();
    FindLineValues();
    FindReady();
    PlaceEffects();
    FillSections();
    if (!keeps_rows || !ChooseKept()) return;
    FillSections();
  }

 private:
  // Where an operand was stored last.
  struct LastStore {
    bool inner = false, outer = false;
    uint32_t index = kNone;
    StatementKind kind = StatementKind::kStore;
    uint32_t pass = 0, phase = 0;
  };

  const Statement& At(uint32_t i) const { return body_.statements[i]; }
  bool IsInner(uint32_t i) const { return info_.statements[i].is_inner; }
  bool IsReduction(uint32_t i) const { return At(i).kind == StatementKind::kReduce; }
  bool IsMasked(uint32_t i) const { return info_.statements[i].block != kNone; }

  template <typename Visit>
  void ForEachNeeded(uint32_t i, Visit visit) const {
    const Statement& s = At(i);
    if (info_.statements[i].block != kNone) visit(info_.statements[i].block);
    if (to_.stored_by[i] != kNone) return visit(At(to_.stored_by[i]).values[0]);
    for (const uint32_t value : s.values)
      if (value != kNone) visit(value);
    for (const uint32_t index : {s.index, s.bound})
      if (index != kNone) std::ranges::for_each(to_.indirects[index], visit);
  }

  void FindIndirects();
  void FindStoredValues();
  void FindLineValues();
  void FindReady();
  void PlaceEffects();
  void FillSections();
  // Returns whether there are any.
  bool ChooseKept();
  void AddToPass(uint32_t i, uint32_t pass) { Add(to_.pass[pass], to_.pass_uses[pass], i, pass); }
  void AddToPhase(uint32_t i, uint32_t phase) { Add(to_.phase[phase], to_.phase_uses[phase], i, kNone); }
  // `pass`: of the section; kNone if it is a phase.
  void Add(LoopSection& section, std::vector<uint32_t>& uses, uint32_t i, uint32_t pass);

  const Body& body_;
  const loops::BodyInfo& info_;
  LoopPasses& to_;
  const uint32_t count_;
  // Of each statement: the first pass or phase where its value can be had.
  std::vector<uint32_t> ready_;
  // Of each store and assertion: the pass (inner ones) or phase where it runs.
  std::vector<uint32_t> place_;
  std::vector<uint32_t> kept_in_;  // of each statement: after this pass, its values can be read
  uint32_t passes_ = 0;
};

void Scheduler::FindIndirects() {
  to_.indirects.resize(body_.indices.size());
  for (size_t i = 0; i < body_.indices.size(); ++i) {
    const IndexNode& node = body_.indices[i];
    std::vector<uint32_t>& made = to_.indirects[i];
    if (node.op == IndexOp::kIndirect) made = {node.a};
    const int arity = loops::ArityOf(node.op);
    if (arity > 0) made = to_.indirects[node.a];
    if (arity < 2) continue;
    const std::vector<uint32_t>&a = to_.indirects[node.a], &b = to_.indirects[node.b];
    made.clear();
    std::ranges::set_union(a, b, std::back_inserter(made));
  }
}

// A body reads what it writes at the same index alone.
void Scheduler::FindStoredValues() {
  to_.stored_by.assign(count_, kNone);
  for (uint32_t i = 0; i < count_; ++i) {
    if (At(i).kind != StatementKind::kLoad) continue;
    for (uint32_t k = i; k-- > 0 && to_.stored_by[i] == kNone;)
      if (At(k).kind == StatementKind::kStore && At(k).operand == At(i).operand) to_.stored_by[i] = k;
  }
}

void Scheduler::FindLineValues() {
  to_.is_of_line.assign(count_, false);
  if (body_.outer == 0 || body_.outer < body_.extents.size()) return;
  std::vector<bool> varies(body_.indices.size());  // along the last dimension
  for (size_t i = 0; i < body_.indices.size(); ++i) {
    const IndexNode& node = body_.indices[i];
    const int arity = loops::ArityOf(node.op);
    if (node.op == IndexOp::kIterator) varies[i] = node.a + 1 == body_.outer;
    varies[i] = varies[i] || (arity > 0 && varies[node.a]) || (arity > 1 && varies[node.b]);
  }
  const auto index_varies = [&](uint32_t index) {
    return index != kNone && (varies[index] || std::ranges::any_of(to_.indirects[index], [&](uint32_t made) {
                                return !to_.is_of_line[made];
                              }));
  };
  const auto is_stored = [&](uint32_t operand) {
    return std::ranges::any_of(body_.statements,
                               [&](const Statement& s) { return Stores(s) && s.operand == operand; });
  };
  for (uint32_t i = 0; i < count_; ++i) {
    const Statement& s = At(i);
    const bool is_plain = !IsMasked(i) && !HasEffect(s) && s.kind != StatementKind::kMask &&
                          s.kind != StatementKind::kUnmask && s.kind != StatementKind::kScan;
    to_.is_of_line[i] = is_plain && !index_varies(s.index) && !index_varies(s.bound) &&
                        !(s.kind == StatementKind::kLoad && is_stored(s.operand)) &&
                        std::ranges::all_of(s.values, [&](uint32_t value) {
                          return value == kNone || to_.is_of_line[value];
                        });
  }
}

void Scheduler::FindReady() {
  ready_.assign(count_, 0);
  to_.first_pass.assign(count_, 0);
  for (uint32_t i = 0; i < count_; ++i) {
    ForEachNeeded(i, [&](uint32_t needed) { ready_[i] = std::max(ready_[i], ready_[needed]); });
    if (IsInner(i)) passes_ = std::max(passes_, ready_[i] + 1);
    if (!IsReduction(i)) continue;
    to_.first_pass[i] = ready_[i];
    ready_[i] += static_cast<uint32_t>(PassesOf(At(i).reduction));
    passes_ = std::max(passes_, ready_[i]);
  }
}

void Scheduler::PlaceEffects() {
  place_ = ready_;
  const uint32_t last = std::max(passes_, 1u) - 1;
  std::vector<LastStore> stores;
  std::vector<bool> loaded;
  const auto of = [](auto& list, uint32_t operand) {
    if (list.size() <= operand) list.resize(operand + 1);
    return list.begin() + operand;
  };
  for (uint32_t i = 0; i < count_; ++i) {
    const Statement& s = At(i);
    if (s.kind == StatementKind::kLoad) *of(loaded, s.operand) = true;
    if (!Stores(s)) continue;
    LastStore& before = *of(stores, s.operand);
    uint32_t& place = place_[i];
    if (IsInner(i)) {
      place = last;
      const bool commutes =
          before.index == s.index || (before.kind == s.kind && s.kind == StatementKind::kAtomicAdd);
      if (before.inner) place = std::max(place, before.pass + (commutes ? 0 : 1));
      if (before.outer) place = std::max(place, before.phase);
      before.inner = true;
      before.pass = place;
    } else {
      if (before.inner) place = std::max(place, before.pass + 1);
      if (before.outer) place = std::max(place, before.phase);
      before.outer = true;
      before.phase = place;
    }
    to_.stores_conflict |= before.inner && before.outer;
    before.index = s.index;
    before.kind = s.kind;
    passes_ = std::max(passes_, IsInner(i) ? place + 1 : place);
  }
  to_.stores_conflict |= passes_ > last + 1;
  for (uint32_t i = 0; i < count_; ++i)
    if (Stores(At(i)) && *of(loaded, At(i).operand)) place_[i] = IsInner(i) ? passes_ - 1 : passes_;
}

// Values that are made once are there; others are made again.
void Scheduler::Add(LoopSection& section, std::vector<uint32_t>& uses, uint32_t i, uint32_t pass) {
  if (section[i]) return;
  section[i] = true;
  if (pass != kNone && kept_in_[i] < pass) return;  // it is read
  ForEachNeeded(i, [&](uint32_t needed) {
    const bool is_there = !IsMasked(needed) && !IsInner(needed) && At(needed).kind != StatementKind::kMask;
    if (!is_there) return Add(section, uses, needed, pass);
    if (std::ranges::find(uses, needed) == uses.end()) uses.push_back(needed);
  });
}

void Scheduler::FillSections() {
  kept_in_.resize(count_, kNone);
  to_.can_be_cut = passes_ > 0;
  to_.pass.assign(passes_, LoopSection(count_));
  to_.phase.assign(passes_ + 1, LoopSection(count_));
  to_.pass_uses.assign(passes_, {});
  to_.phase_uses.assign(passes_ + 1, {});
  for (uint32_t i = 0; i < count_; ++i) {
    const bool is_late = IsReduction(i) && to_.first_pass[i] > 0;
    const bool is_inner_effect = IsInner(i) && (HasEffect(At(i)) || At(i).kind == StatementKind::kScan);
    to_.can_be_cut &= !is_late && !is_inner_effect && At(i).kind != StatementKind::kAtomicAdd;
    if (IsReduction(i)) {
      for (uint32_t p = 0; p < static_cast<uint32_t>(PassesOf(At(i).reduction)); ++p)
        AddToPass(i, to_.first_pass[i] + p);
    } else if (IsInner(i)) {
      if (HasEffect(At(i))) AddToPass(i, place_[i]);
    } else if (!IsMasked(i) && At(i).kind != StatementKind::kMask) {
      AddToPhase(i, place_[i]);
    }
  }
}

bool Scheduler::ChooseKept() {
  for (uint32_t i = 0; i < count_; ++i) {
    const bool has_bytes = info_.statements[i].has_value && info_.statements[i].type != DType::kBool;
    if (!IsInner(i) || IsMasked(i) || !has_bytes || !IsCostly(At(i))) continue;
    uint32_t first = kNone, passes = 0;
    for (uint32_t p = 0; p < passes_; ++p) {
      if (!to_.pass[p][i]) continue;
      first = std::min(first, p);
      ++passes;
    }
    if (passes < 2) continue;
    to_.kept.push_back(i);
    to_.kept_in.push_back(first);
    kept_in_[i] = first;
  }
  return !to_.kept.empty();
}

}  // namespace

int MaxKeptValues(const Statement& s) {
  if (s.kind == StatementKind::kIndirect) return 2;  // and whether it is valid
  if (s.kind != StatementKind::kReduce) return 1;
  // Its values, what its first pass gave, and two states of at most two values in each pass.
  constexpr int kStates = 2, kMaxValues = 2;
  return 2 * loops::InfoOf(s.reduction).gives + kStates * kMaxValues * PassesOf(s.reduction);
}

bool HasEffect(const Statement& s) { return Stores(s) || s.kind == StatementKind::kAssert; }

bool IsCostly(const Statement& s) {
  switch (s.kind) {
    case StatementKind::kRandom:
    case StatementKind::kSearch:
    case StatementKind::kScan:
      return true;
    case StatementKind::kCall:
      return NanosecondsOf(OpOf(s.function)) > 0.1f;
    default:
      return false;
  }
}

int PassesOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kWelford:
    case Reduction::kWelfordCombine:
    case Reduction::kOnlineSoftmax:
      return 2;
    default:
      return 1;
  }
}

LoopPasses::LoopPasses(const loops::Body& body, const loops::BodyInfo& info, bool keeps_rows) {
  Scheduler(body, info, *this).Run(keeps_rows);
}

}  // namespace xpud::kernels
