#include "kernels/families/line_emission.h"

namespace xpud::kernels {

void LineEmission::EmitLines(PackEmission& pack) {
  const int64_t unit = UnitOf(e_.target());
  if (!e_.gpu()) return pack.ForEachSlice(unit, [&](const PackEmission::Slice& slice) { EmitSlice(slice); });
  pack.ForEachSlice(unit, [&](const PackEmission::Slice& slice) {
    Begin(slice);
    pack.ForEachBlock(slice, block_, [&](Value j, int block) { EmitBlock(slice, j, block); });
  });
}

// On the host, whether any element is reported is known after the loop, which is vectorised.
void LineEmission::EmitSlice(const PackEmission::Slice& slice) {
  Begin(slice);
  bool reports = false;
  const Values any = e_.Loop(
      slice.from, slice.to, e_.I64(1), {e_.ir().getInt32(0)},
      [&](Value j, const Values& before) -> Values {
        Values loaded;
        for (const Stream& stream : streams_)
          if (stream.load) loaded.push_back(e_.Load(stream.dtype, slice.slots[stream.slot], j, compute_));
        const std::vector<Typed> results = Element(loaded);
        size_t next = 0;
        for (const Stream& stream : streams_) {
          if (!stream.store || next == results.size()) continue;
          const Typed& result = results[next++];
          e_.Store(stream.dtype, slice.slots[stream.slot], j, result.value, result.scalar);
        }
        Value const reported = Reported();
        if (reported == nullptr) return before;
        reports = true;
        return {e_.ir().CreateOr(before[0], e_.ir().CreateZExt(reported, e_.ir().getInt32Ty()))};
      },
      Emitter::LoopKind::kParallel);
  if (reports) EmitReport(e_.ir().CreateICmpNE(any[0], e_.ir().getInt32(0)));
}

// All loads precede the first store, which may be in place.
void LineEmission::EmitBlock(const PackEmission::Slice& slice, Value j, int block) {
  std::vector<Values> loaded(static_cast<size_t>(block));
  for (const Stream& stream : streams_) {
    if (!stream.load) continue;
    const Values values = e_.LoadBlock(stream.dtype, slice.slots[stream.slot], j, compute_, block);
    for (size_t i = 0; i < loaded.size(); ++i) loaded[i].push_back(values[i]);
  }
  std::vector<std::vector<Typed>> results;
  Value any = nullptr;
  for (const Values& inputs : loaded) {
    results.push_back(Element(inputs));
    Value const reported = Reported();
    if (reported != nullptr) any = any == nullptr ? reported : e_.ir().CreateOr(any, reported);
  }
  size_t next = 0;
  for (const Stream& stream : streams_) {
    if (!stream.store || next == results[0].size()) continue;
    Values values;
    for (const std::vector<Typed>& element : results) values.push_back(element[next].value);
    e_.StoreBlock(stream.dtype, slice.slots[stream.slot], j, values, results[0][next++].scalar);
  }
  if (any != nullptr) EmitReport(any);
}

}  // namespace xpud::kernels
