#include "kernels/library/onednn/packed_matrix.h"

#include <algorithm>

#include "kernels/library/onednn/primitive.h"
#include "kernels/library/simd/simd.h"
#include "kernels/library/thread_memory.h"

namespace xpud::kernels::onednn {
namespace {

using Tag = dnnl::memory::format_tag;

constexpr int64_t kPackBytesPerGroup = 1 << 20;
constexpr int64_t kBlockRows = 16;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Column panels of 16 to 64; within them, rows in blocks of 16 (pairs of rows together for 16-bit types).
Tag PanelTag(int64_t width, ops::DType type) {
  const bool pairs = ops::SizeOf(type) == 2;
  switch (width) {
    case 16:
      return pairs ? Tag::BA16a16b2a : Tag::BA16a16b;
    case 32:
      return pairs ? Tag::BA16a32b2a : Tag::BA16a32b;
    case 48:
      return pairs ? Tag::BA16a48b2a : Tag::BA16a48b;
    default:
      return pairs ? Tag::BA16a64b2a : Tag::BA16a64b;
  }
}

}  // namespace

PanelLayout PanelLayout::Of(int64_t k, int64_t n, ops::DType type) {
  const int64_t width = std::min<int64_t>(64, CeilDivide(n, 16) * 16);
  return {k, n, type, width, PanelTag(width, type)};
}

// In the blocks of 16-bit types, 16 pairs of rows follow each other.
int64_t PanelLayout::column_elements() const {
  const int64_t block = ops::SizeOf(type) == 2 ? 2 * kBlockRows : kBlockRows;
  return CeilDivide(k, block) * block;
}

int64_t PanelLayout::RowsPerGroup() const {
  const int64_t row_bytes = width * static_cast<int64_t>(ops::SizeOf(type));
  return std::min(column_elements(), kPackBytesPerGroup / row_bytes / (2 * kBlockRows) * (2 * kBlockRows));
}

int64_t PanelLayout::PanelsPerGroup() const {
  return std::max<int64_t>(1, kPackBytesPerGroup / static_cast<int64_t>(panel_bytes()));
}

int64_t PanelLayout::groups() const {
  return CeilDivide(panels(), PanelsPerGroup()) * CeilDivide(column_elements(), RowsPerGroup());
}

bool PanelLayout::PackBlock(const WeightSource& source, int64_t panel, int64_t first_row, int64_t rows,
                            std::byte* target) const {
  const int64_t first_column = panel * width, columns = std::min(width, n - first_column);
  const int64_t element = static_cast<int64_t>(ops::SizeOf(type));
  const simd::MatrixView view{source.data + (first_row * source.row + first_column * source.column) *
                                                static_cast<int64_t>(ops::SizeOf(source.source)),
                              source.source, source.row, source.column};
  const bool as_is = source.source == type && IsMatrix({0, source.row, source.column}, k, n);
  try {
    dnnl::memory::desc from({rows, columns}, TypeOf(type), dnnl::memory::dims{columns, 1});
    const void* data = view.data;
    if (as_is) {
      from = dnnl::memory::desc({rows, columns}, TypeOf(type), dnnl::memory::dims{source.row, source.column});
    } else {
      std::byte* const dense = ThreadMemory(static_cast<size_t>(rows * columns * element));
      simd::Best().gather({view, rows, columns, dense, type});
      data = dense;
    }
    const dnnl::memory::desc to({rows, columns}, TypeOf(type), tag);
    dnnl::memory in(from, CpuEngine(), const_cast<void*>(data));
    dnnl::memory out(to, CpuEngine(),
                     target + panel * static_cast<int64_t>(panel_bytes()) + first_row * width * element);
    const dnnl::stream& stream = ThreadStream();
    dnnl::reorder(in, out).execute(stream, in, out);
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

bool PanelLayout::Pack(const WeightSource& source, int64_t group, std::byte* target) const {
  ThreadStream();
  const int64_t parts = CeilDivide(column_elements(), RowsPerGroup());  // of a panel
  const int64_t first = group / parts * PanelsPerGroup(), last = std::min(first + PanelsPerGroup(), panels());
  const int64_t row = group % parts * RowsPerGroup(), rows = std::min(RowsPerGroup(), k - row);
  for (int64_t panel = first; panel < last; ++panel)
    if (!PackBlock(source, panel, row, rows, target)) return false;
  return true;
}

PackedMatrix::PackedMatrix(const WeightSource& source)
    : source_(source), layout_(PanelLayout::Of(source.k, source.n, source.packed)) {
  Allocate(layout_.bytes(), static_cast<uint32_t>(layout_.groups()));
  unpacked_groups_ = pack_groups();
}

void PackedMatrix::Pack(uint32_t group) {
  if (memory() == nullptr || !layout_.Pack(source_, group, memory())) return;
  unpacked_groups_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace xpud::kernels::onednn
