#include "kernels/families/pack.h"

#include <bit>
#include <utility>

#include "kernels/families/slices.h"

namespace xpud::kernels {

PackRanges::Range PackRanges::RangeOf(const Operand& operand) {
  if (operand.data == nullptr) return {};
  int64_t extent = 1;
  for (size_t d = 0; d < operand.rank; ++d) {
    if (operand.sizes[d] == 0) return {};
    extent += (operand.sizes[d] - 1) * operand.strides[d];
  }
  const auto begin = reinterpret_cast<uintptr_t>(operand.data);
  return {begin, begin + static_cast<uintptr_t>(extent) * ops::SizeOf(operand.dtype)};
}

bool PackRanges::Meets(const Range& range, const std::vector<Range>& among, size_t count) {
  bool meets = false;
  for (size_t i = 0; i < count; ++i) meets |= range.Meets(among[i]);
  return meets;
}

void PackRanges::Put(const Range& range, std::vector<Range>& to, size_t& count) {
  if (count == to.size()) to.emplace_back();
  to[count++] = range;
}

bool PackRanges::Fits(std::span<const Operand> outputs, std::span<const Operand> inputs) const {
  for (const Operand& output : outputs) {
    const Range range = RangeOf(output);
    if (Meets(range, written_, writes_) || Meets(range, read_, reads_)) return false;
  }
  for (const Operand& input : inputs) {
    if (input.is_tensor() && Meets(RangeOf(input), written_, writes_)) return false;
  }
  return true;
}

void PackRanges::Add(std::span<const Operand> outputs, std::span<const Operand> inputs) {
  for (const Operand& output : outputs) Put(RangeOf(output), written_, writes_);
  for (const Operand& input : inputs) {
    if (input.is_tensor() && input.data != outputs[0].data) Put(RangeOf(input), read_, reads_);
  }
}

void FinishPack(const PackSize& size, PackArguments<Planned>& arguments, Launch& launch) {
  for (size_t s = 0; s < static_cast<size_t>(size.slots); ++s)
    std::fill(arguments.pointers[s].begin() + size.tensors, arguments.pointers[s].end(), nullptr);
  std::fill(arguments.counts.begin() + size.tensors, arguments.counts.end(), 0);
  arguments.tensors = size.tensors;
  arguments.units = 0;
  if (size.target != Target::kHost) {
    launch.group_size = {kGpuLanes, 1, 1};
    return launch.SetGroups(size.units);
  }
  arguments.units = std::max<int64_t>(1, SliceOf(size.elements, size.nanoseconds) / size.unit);
  launch.SetGroups(CeilDiv(size.units, arguments.units));
}

// ---- emission

PackEmission::PackEmission(Emitter& emitter, const PackArguments<Emitted>& arguments, int slots, int capacity)
    : e_(emitter), args_(arguments), capacity_(static_cast<size_t>(capacity)) {
  for (size_t s = 0; s < static_cast<size_t>(slots); ++s) AddSlot(arguments.pointers[s]);
  if (e_.gpu()) return;
  counts_ = Spill({arguments.counts.begin(), arguments.counts.begin() + capacity});
}

void PackEmission::AddSlot(Values by_tensor) {
  if (!e_.gpu()) spilled_.push_back(Spill(by_tensor));
  slots_.push_back(std::move(by_tensor));
}

// Arguments cannot be indexed, memory can.
PackEmission::Value PackEmission::Spill(const Values& values) {
  llvm::Type* const type = values[0]->getType();
  auto& ir = e_.ir();
  Value const array = ir.CreateAlloca(type, ir.getInt32(static_cast<uint32_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i)
    ir.CreateStore(values[i], ir.CreateConstInBoundsGEP1_64(type, array, i));
  return array;
}

PackEmission::Value PackEmission::Reload(Value array, llvm::Type* type, Value index) {
  return e_.ir().CreateLoad(type, e_.ir().CreateInBoundsGEP(type, array, index));
}

PackEmission::Value PackEmission::UnitsOf(Value count, int64_t unit) {
  if (unit == 1) return count;
  const auto shift = static_cast<int64_t>(std::countr_zero(static_cast<uint64_t>(unit)));
  return e_.ir().CreateLShr(e_.Add(count, e_.I64(unit - 1)), e_.I64(shift));
}

void PackEmission::HostLoop(int64_t unit, const std::function<void(Slice&)>& body) {
  e_.Loop(e_.I64(0), args_.tensors, e_.I64(1), {e_.I64(0)}, [&](Value t, const Values& first) -> Values {
    Slice slice;
    for (size_t s = 0; s < slots_.size(); ++s)
      slice.slots.push_back(Reload(spilled_[s], slots_[s][0]->getType(), t));
    slice.count = Reload(counts_, e_.ir().getInt64Ty(), t);
    slice.first = first[0];
    slice.from = e_.I64(0);
    slice.to = UnitsOf(slice.count, unit);
    Value const next = e_.Add(first[0], slice.to);
    body(slice);
    return {next};
  });
}

// The tensor for which `is_mine` holds, with all of its units.
PackEmission::Slice PackEmission::Select(int64_t unit, const Choice& is_mine) {
  auto& ir = e_.ir();
  Slice slice;
  for (const Values& by_tensor : slots_) slice.slots.push_back(by_tensor[0]);
  slice.count = args_.counts[0];
  slice.first = slice.from = e_.I64(0);
  Value first = UnitsOf(slice.count, unit);
  for (size_t t = 1; t < capacity_; ++t) {
    Value const units = UnitsOf(args_.counts[t], unit);
    Value const mine = is_mine(t, first, units);
    for (size_t s = 0; s < slots_.size(); ++s)
      slice.slots[s] = ir.CreateSelect(mine, slots_[s][t], slice.slots[s]);
    slice.count = ir.CreateSelect(mine, args_.counts[t], slice.count);
    slice.first = ir.CreateSelect(mine, first, slice.first);
    first = e_.Add(first, units);
  }
  slice.to = UnitsOf(slice.count, unit);
  return slice;
}

void PackEmission::ForEachSlice(int64_t unit, const std::function<void(const Slice&)>& body) {
  auto& ir = e_.ir();
  if (!e_.gpu()) {
    Value const begin = e_.Mul(e_.Group(0), args_.units), end = e_.Add(begin, args_.units);
    return HostLoop(unit, [&](Slice& slice) {
      Value const from = ir.CreateSub(begin, slice.first);
      slice.from = ir.CreateBinaryIntrinsic(llvm::Intrinsic::smax, from, e_.I64(0));
      slice.to = e_.Min(ir.CreateSub(end, slice.first), slice.to);
      body(slice);
    });
  }
  Value const group = e_.Group(0);
  Slice slice = Select(unit, [&](size_t, Value first, Value units) {
    return ir.CreateICmpULT(ir.CreateSub(group, first), units);
  });
  slice.from = ir.CreateSub(group, slice.first);
  slice.to = e_.Add(slice.from, e_.I64(1));
  body(slice);
}

void PackEmission::ForEachTensor(int64_t unit, const std::function<void(const Slice&)>& body) {
  if (!e_.gpu()) return HostLoop(unit, body);
  Value const group = e_.Group(0);
  body(Select(unit, [&](size_t t, Value, Value) {
    return e_.ir().CreateICmpEQ(group, e_.I64(static_cast<int64_t>(t)));
  }));
}

void PackEmission::ForEachBlock(const Slice& slice, int block,
                                const std::function<void(Value j, int block)>& each) {
  Value const begin = e_.Mul(slice.from, e_.I64(kGpuUnit));
  Value const end = e_.Min(e_.Add(begin, e_.I64(kGpuUnit)), slice.count);
  Value const own = e_.Add(begin, e_.Mul(e_.Lane(), e_.I64(block)));
  e_.Loop(own, end, e_.I64(int64_t{kGpuLanes} * block), [&](Value j) {
    if (block == 1) return each(j, 1);
    Value const whole = e_.ir().CreateICmpSLE(e_.Add(j, e_.I64(block)), end);
    e_.If(whole, [&] { each(j, block); });
    e_.If(e_.ir().CreateNot(whole),
          [&] { e_.Loop(j, end, e_.I64(1), [&](Value single) { each(single, 1); }); });
  });
}

}  // namespace xpud::kernels
