#include "kernels/families/gather.h"

#include "kernels/families/box_emission.h"
#include "kernels/families/skeleton_number.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {

// ---- planning

namespace {

// The integer type of elements of `bytes` bytes: bits are moved, whatever the type.
ops::DType BitsOf(size_t bytes) {
  if (bytes == 8) return ops::DType::kInt64;
  return bytes == 4 ? ops::DType::kInt32 : bytes == 2 ? ops::DType::kInt16 : ops::DType::kUInt8;
}

// Rows of out and source in elements of up to 8 bytes, as long as everything stays aligned: wider accesses of
// a GPU's threads. Gives the element's size; `stride` is the source's along the indexed dimension.
size_t Widen(const Operand& out, const Operand& source, Layout& layout, int64_t& stride) {
  const size_t inner = static_cast<size_t>(layout.rank - 1);
  size_t bytes = ops::SizeOf(out.dtype);
  const bool rows = layout.AccessOf(0) == Access::kContiguous && layout.AccessOf(1) == Access::kBroadcast &&
                    layout.AccessOf(2) == Access::kContiguous;
  const uint64_t addresses = reinterpret_cast<uintptr_t>(out.data) | reinterpret_cast<uintptr_t>(source.data);
  for (; rows && bytes < 8 && addresses % (2 * bytes) == 0; bytes *= 2) {
    int64_t counts = layout.sizes[inner] | stride;
    for (size_t d = 0; d < inner; ++d) counts |= layout.strides[0][d] | layout.strides[2][d];
    if (counts % 2 != 0) break;
    layout.sizes[inner] /= 2;
    stride /= 2;
    for (size_t d = 0; d < inner; ++d) layout.strides[0][d] /= 2, layout.strides[2][d] /= 2;
  }
  return bytes;
}

// Cost of an element on the host, measured: rows at memory's speed, single elements from a cache.
float NanosecondsOf(const GatherKey& key, const Layout& layout) {
  const bool rows = key.access[1] == Access::kBroadcast && key.access[2] == Access::kContiguous;
  if (!rows) return 0.7f;
  return 0.045f * static_cast<float>(ops::SizeOf(key.element)) + 2.0f / static_cast<float>(layout.inner());
}

}  // namespace

absl::StatusOr<Readiness> GatherPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const Operand &out = call.outputs[0], &source = call.inputs[0], &index = call.inputs[1];
  const bool embedding = call.row->family == ops::Family::kEmbedding;
  const size_t dim = embedding ? 0 : static_cast<size_t>(call.attributes[0].AsInteger());
  // Index and source over out's dimensions. A selected dimension walks the index alone; elsewhere an index of
  // rank 1 (or 0) stands still.
  Operand index_over = out, source_over = out;
  const bool select = embedding || index.rank != source.rank || source.rank <= 1;
  for (size_t d = 0; d < out.rank; ++d) {
    index_over.strides[d] = select ? (d == dim && index.rank > 0 ? index.strides[0] : 0) : index.strides[d];
    source_over.strides[d] = d == dim ? 0 : source.strides[d];
  }
  Layout layout = Layout::Over(out);
  layout.AddOperand(out);
  layout.AddOperand(index_over);
  layout.AddOperand(source_over);
  if (layout.numel() == 0) return Readiness::kReady;
  if (index.numel() == 0)
    return absl::InvalidArgumentError("index_select of a scalar needs an index of one element");
  layout.Collapse(/*may_permute=*/true);

  const bool gpu = cache_.target() != Target::kHost;
  int64_t stride = source.rank == 0 ? 0 : source.strides[dim];
  const size_t bytes = gpu ? Widen(out, source, layout, stride) : ops::SizeOf(out.dtype);
  GatherKey key;
  key.element = BitsOf(bytes);
  key.index = index.dtype;
  key.rank = layout.rank;
  key.narrow = gpu && layout.Fits32();
  std::array<BoxOperand, 3> operands;
  for (size_t o = 0; o < 3; ++o) {
    key.access[o] = layout.AccessOf(static_cast<int>(o));
    operands[o] = {key.access[o], key.element, o == 0 ? out.data : o == 1 ? index.data : source.data};
  }
  // 16 bytes, once Widen has made 8 of what is moved. Its rows have a broadcast index.
  key.pairs = cache_.target() == Target::kNvptx && bytes == 8 && layout.rank > 1 &&
              key.access[1] == Access::kBroadcast && stride % 2 == 0 && BlockOf(layout, operands) == 2;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key.Pack()));
  if (kernel == nullptr) return Readiness::kCompiling;

  Launch& launch = launches.Add();
  launch.Reset(kernel, 1);
  launch.Push(out.data);
  launch.Push(index.data);
  launch.Push(source.data);
  launch.Push(call.error_word);
  launch.Push(source.rank == 0 ? int64_t{1} : source.sizes[dim]);
  launch.Push(stride);
  PushBox(cache_.target(), layout, operands, {false, key.pairs ? 2 : 1}, NanosecondsOf(key, layout), launch);
  return Readiness::kReady;
}

// ---- emission

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
