#include "kernels/families/gather.h"

#include "kernels/families/planners.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"
#include "proto/ops/families/gather.h"

namespace xpud::kernels {

// ---- planning

namespace {

// Widens the elements of rows of out and source up to 8 bytes while everything stays aligned, so that a GPU's
// threads make wider accesses. Returns the element's size; `stride` is the source's along the indexed
// dimension.
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

// Returns the measured cost of an element on the host: rows at the speed of memory, single elements from a
// cache.
float NanosecondsOf(const GatherKey& key, const Layout& layout) {
  const bool rows = key.access[1] == Access::kBroadcast && key.access[2] == Access::kContiguous;
  if (!rows) return 0.7f;
  return 0.045f * static_cast<float>(ops::SizeOf(key.element)) + 2.0f / static_cast<float>(layout.inner());
}

ops::GatherCall<ops::Given> AsGather(const ops::EmbeddingCall<ops::Given>& embedding) {
  return {.out = embedding.out, .self = embedding.weight, .index = embedding.index};
}

}  // namespace

absl::StatusOr<Readiness> GatherPlanner::Plan(const OpCall& call, Workspace, LaunchList& launches) {
  const bool embedding = call.row->family == ops::Family::kEmbedding;
  const auto gather =
      embedding ? AsGather(ops::Read<ops::EmbeddingCall>(call)) : ops::Read<ops::GatherCall>(call);
  const Operand &out = *gather.out, &source = *gather.self, &index = *gather.index;
  const auto dim = static_cast<size_t>(gather.dim);
  // Index and source over out's dimensions. In select, the indexed dimension steps only the index, whose
  // other strides are 0.
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
  // Moves 16 bytes at once if Widen made elements of 8 bytes, whose rows have a broadcast index.
  key.pairs = cache_.target() == Target::kNvptx && bytes == 8 && layout.rank > 1 &&
              key.access[1] == Access::kBroadcast && stride % 2 == 0 && BlockOf(layout, operands) == 2;
  ASSIGN_OR_RETURN(const Kernel* const kernel, cache_.Find(skeleton_, key));
  if (kernel == nullptr) return Readiness::kCompiling;

  Launch& launch = launches.Add();
  launch.Reset(kernel, 1);
  GatherArguments<Planned> arguments;
  arguments.out = out.data;
  arguments.index = index.data;
  arguments.source = source.data;
  arguments.error_word = call.error_word;
  arguments.count = source.rank == 0 ? 1 : source.sizes[dim];
  arguments.stride = stride;
  PlanBox(cache_.target(), layout, operands, {false, key.pairs ? 2 : 1}, NanosecondsOf(key, layout),
          arguments.box, launch);
  PushArguments(key, arguments, launch);
  return Readiness::kReady;
}

// ---- emission

namespace {

class GatherEmission : public BoxEmission {
 public:
  GatherEmission(const GatherKey& key, const GatherArguments<Emitted>& arguments, Emitter& emitter)
      : BoxEmission(
            emitter, arguments.box,
            {.rank = key.rank, .narrow = key.narrow, .block = key.pairs ? 2 : 1, .access = key.access}),
        key_(key),
        args_(arguments) {}

  using BoxEmission::EmitLoops;

 private:
  // An index out of range reads and writes nothing: its elements keep their values.
  Value EmitElement(const Values& offsets, Value) override { return Move(offsets, 1); }
  Value EmitBlock(const Values& offsets, Value, int block) override { return Move(offsets, block); }

  Value Move(const Values& offsets, int block) {
    Value const index = e_.LoadInvariant(key_.index, args_.index, offsets[1], Scalar::kI64);
    Value const inside = e_.IsIndex(index, args_.count);
    e_.If(inside, [&] {
      const Scalar scalar = ScalarOf(key_.element);
      Value const at = e_.Add(offsets[2], e_.Mul(index, args_.stride));
      if (block == 1) {
        e_.Store(key_.element, args_.out, offsets[0], e_.Load(key_.element, args_.source, at, scalar),
                 scalar);
      } else {
        e_.StoreBlock(key_.element, args_.out, offsets[0],
                      e_.LoadBlock(key_.element, args_.source, at, scalar, block), scalar);
      }
    });
    return e_.ir().CreateSelect(inside, e_.I64(0), e_.IndexError(index));
  }
  void EmitReport(Value code) override { e_.ReportCode(args_.error_word, code); }

  const GatherKey& key_;
  const GatherArguments<Emitted>& args_;
};

}  // namespace

absl::Status GatherSkeleton::EmitBody(const GatherKey& key, const GatherArguments<Emitted>& arguments,
                                      Emitter& e) const {
  GatherEmission(key, arguments, e).EmitLoops();
  return absl::OkStatus();
}

constinit const PlannerFactory kGatherPlanner = MakePlanner<GatherPlanner>;
constinit const PlannerFactory kEmbeddingPlanner = MakePlanner<GatherPlanner>;

}  // namespace xpud::kernels
