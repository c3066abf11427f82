#include "kernels/families/gather_skeleton.h"

#include "kernels/families/box_emission.h"
#include "kernels/families/skeleton_number.h"

namespace xpud::kernels {

KernelKey GatherKey::Pack() const {
  KeyWriter writer(static_cast<uint8_t>(SkeletonNumber::kGather));
  writer.Put(static_cast<uint64_t>(element), 4);
  writer.Put(static_cast<uint64_t>(index), 4);
  writer.Put(static_cast<uint64_t>(rank), 4);
  writer.Put(narrow, 1);
  writer.Put(pairs, 1);
  for (const Access a : access) writer.Put(static_cast<uint64_t>(a), 2);
  return writer.key();
}

GatherKey GatherKey::Unpack(const KernelKey& packed) {
  KeyReader reader(packed);
  GatherKey key;
  key.element = static_cast<ops::DType>(reader.Take(4));
  key.index = static_cast<ops::DType>(reader.Take(4));
  key.rank = static_cast<int>(reader.Take(4));
  key.narrow = reader.Take(1) != 0;
  key.pairs = reader.Take(1) != 0;
  for (Access& a : key.access) a = static_cast<Access>(reader.Take(2));
  return key;
}

namespace {

class GatherEmission : public BoxEmission {
 public:
  GatherEmission(const GatherKey& key, Emitter& emitter)
      : BoxEmission(
            emitter,
            {key.rank, false, key.narrow, key.pairs ? 2 : 1, {key.access.begin(), key.access.end()}, {}}),
        key_(key) {}

  void Run(const std::string& name) {
    std::vector<ArgType> args(4, ArgType::kPointer);
    args.resize(6, ArgType::kI64);
    AppendArguments(args);
    e_.Begin(name, args);
    EmitLoops();
  }

 private:
  // An index outside reads and writes nothing: its elements keep what they held.
  Value EmitElement(const Values& offsets, Value) override { return Move(offsets, 1); }
  Value EmitBlock(const Values& offsets, Value, int block) override { return Move(offsets, block); }

  Value Move(const Values& offsets, int block) {
    Value const index = e_.LoadInvariant(key_.index, e_.Arg(1), offsets[1], Scalar::kI64);
    Value const inside = e_.IsIndex(index, e_.Arg(4));
    e_.If(inside, [&] {
      const Scalar scalar = ScalarOf(key_.element);
      Value const at = e_.Add(offsets[2], e_.Mul(index, e_.Arg(5)));
      if (block == 1) {
        e_.Store(key_.element, e_.Arg(0), offsets[0], e_.Load(key_.element, e_.Arg(2), at, scalar), scalar);
      } else {
        e_.StoreBlock(key_.element, e_.Arg(0), offsets[0],
                      e_.LoadBlock(key_.element, e_.Arg(2), at, scalar, block), scalar);
      }
    });
    return e_.ir().CreateSelect(inside, e_.I64(0), e_.IndexError(index));
  }
  void EmitReport(Value code) override { e_.ReportCode(e_.Arg(3), code); }

  const GatherKey& key_;
};

}  // namespace

absl::Status GatherSkeleton::Emit(const KernelKey& packed, const std::string& name, Emitter& emitter) const {
  const GatherKey key = GatherKey::Unpack(packed);
  GatherEmission(key, emitter).Run(name);
  return absl::OkStatus();
}

}  // namespace xpud::kernels
