#include "kernels/families/gather_planner.h"

#include "kernels/families/box_emission.h"
#include "kernels/families/slices.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
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

}  // namespace xpud::kernels
