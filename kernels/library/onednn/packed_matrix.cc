#include "kernels/library/onednn/packed_matrix.h"

#include <algorithm>

#include "kernels/library/simd/simd.h"
#include "kernels/library/thread_memory.h"

namespace xpud::kernels::onednn {
namespace {

using Tag = dnnl::memory::format_tag;

constexpr int64_t kPackBytesPerGroup = 1 << 18;
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

void PanelLayout::PackBlock(const WeightSource& source, int64_t panel, int64_t first_row,
                            std::byte* target) const {
  const int64_t first_column = panel * width, element = static_cast<int64_t>(ops::SizeOf(type));
  simd::Panel block;
  block.rows = std::min(RowsPerGroup(), k - first_row);
  block.columns = std::min(width, n - first_column);
  block.target_rows = std::min(RowsPerGroup(), column_elements() - first_row);
  block.width = width;
  block.target = target + panel * static_cast<int64_t>(panel_bytes()) + first_row * width * element;
  block.source = {source.data + (first_row * source.row + first_column * source.column) *
                                    static_cast<int64_t>(ops::SizeOf(source.source)),
                  source.source, source.row, source.column};
  if (source.source != type || (source.row != 1 && source.column != 1)) {
    std::byte* const dense = ThreadMemory(static_cast<size_t>(block.rows * block.columns * element));
    simd::Best().gather({block.source, block.rows, block.columns, dense, type});
    block.source = {dense, type, block.columns, 1};
  }
  simd::Best().pack(block);
}

void PanelLayout::Pack(const WeightSource& source, int64_t group, std::byte* target) const {
  const int64_t parts = CeilDivide(column_elements(), RowsPerGroup());  // of a panel
  const int64_t first = group / parts * PanelsPerGroup(), last = std::min(first + PanelsPerGroup(), panels());
  for (int64_t panel = first; panel < last; ++panel)
    PackBlock(source, panel, group % parts * RowsPerGroup(), target);
}

PackedMatrix::PackedMatrix(const WeightSource& source)
    : source_(source), layout_(PanelLayout::Of(source.k, source.n, source.packed)) {
  Allocate(layout_.bytes(), static_cast<uint32_t>(layout_.groups()));
  unpacked_groups_ = pack_groups();
}

void PackedMatrix::Pack(uint32_t group) {
  if (memory() == nullptr) return;
  layout_.Pack(source_, group, memory());
  unpacked_groups_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace xpud::kernels::onednn
