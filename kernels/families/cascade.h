// A fold over a long range whose rounding errors stay small: the range is folded in blocks, and the results
// of blocks are merged in pairs, and so on. So a result comes out of one short chain of additions, and as
// many merges as the number of blocks has bits. The pairs depend only on the range.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "kernels/compiler/emitter.h"

namespace xpud::kernels {

// Steps in a chain.
inline constexpr int64_t kChain = 16;

class Cascade {
 public:
  using Value = llvm::Value*;
  using Values = std::vector<llvm::Value*>;

  // `empty`: the fold of an empty range.
  Cascade(Emitter& emitter, Values empty, std::function<Values(const Values&, const Values&)> merge)
      : e_(emitter), empty_(std::move(empty)), merge_(std::move(merge)) {}

  // Folds [begin, end) by fold(from, to) of blocks of `block`. The other values of the loops that are open
  // stay in registers: the results that wait for their pair are in memory. On a GPU they would be in memory
  // of each lane, of which CUDA keeps as much as all lanes of the device could use (a GB, at addresses that
  // chunks need): there, where a lane has few blocks, their results are merged one after the other.
  Values Fold(Value begin, Value end, Value block, const std::function<Values(Value from, Value to)>& fold) {
    llvm::IRBuilder<>& ir = e_.ir();
    if (e_.gpu()) {
      return e_.Loop(begin, end, block, empty_, [&](Value from, const Values& before) {
        return merge_(before, fold(from, e_.Min(e_.Add(from, block), end)));
      });
    }
    Values waiting;  // result [l]: of 2^l blocks, if bit l of the number of blocks is set
    for (Value v : empty_) waiting.push_back(e_.Local(v->getType(), kMaxLevels));
    Value const several = ir.CreateICmpSLT(e_.Add(begin, block), end), one = e_.I64(1);
    Values carried = empty_;
    carried.push_back(e_.I64(0));
    carried = e_.Loop(begin, end, block, carried, [&](Value from, const Values& before) {
      Values here = fold(from, e_.Min(e_.Add(from, block), end));
      Value const blocks = before.back();
      // Most ranges are not longer than a block.
      Values after = e_.Where(several, here, [&] {
        Values merged = here;
        merged.push_back(e_.I64(0));
        merged = e_.While(
            merged, [&](const Values& now) { return Bit(blocks, now.back()); },
            [&](const Values& now) {
              return Up(merge_(Load(waiting, now.back()), Without(now)), now.back());
            });
        for (size_t i = 0; i < waiting.size(); ++i)
          e_.StoreRaw(waiting[i], Place(merged.back(), merged[i]->getType()), merged[i]);
        return here;
      });
      after.push_back(e_.Add(blocks, one));
      return after;
    });
    Value const blocks = carried.back();
    return e_.Where(several, Without(carried), [&] {
      Value const lowest = ir.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, blocks, ir.getTrue());
      return Without(e_.While(
          Up(Load(waiting, lowest), lowest),
          [&](const Values& now) { return ir.CreateICmpNE(ir.CreateLShr(blocks, now.back()), e_.I64(0)); },
          [&](const Values& now) {
            const Values merged = e_.Where(Bit(blocks, now.back()), Without(now),
                                           [&] { return merge_(Load(waiting, now.back()), Without(now)); });
            return Up(merged, now.back());
          }));
    });
  }

 private:
  static constexpr uint64_t kMaxLevels = 48;

  Value Bit(Value number, Value bit) {
    return e_.ir().CreateTrunc(e_.ir().CreateLShr(number, bit), e_.ir().getInt1Ty());
  }
  // Raw accesses count scalars, also those of vectors.
  Value Place(Value level, llvm::Type* type) {
    const auto* const vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
    return vector == nullptr ? level : e_.Mul(level, e_.I64(vector->getNumElements()));
  }
  Values Load(const Values& arrays, Value level) {
    Values values;
    for (size_t i = 0; i < arrays.size(); ++i) {
      llvm::Type* const type = empty_[i]->getType();
      values.push_back(e_.LoadRaw(type, arrays[i], Place(level, type)));
    }
    return values;
  }
  // `values`, and the level above `level`.
  Values Up(Values values, Value level) {
    values.push_back(e_.Add(level, e_.I64(1)));
    return values;
  }
  static Values Without(const Values& values) { return {values.begin(), values.end() - 1}; }

  Emitter& e_;
  const Values empty_;
  const std::function<Values(const Values&, const Values&)> merge_;
};

}  // namespace xpud::kernels
