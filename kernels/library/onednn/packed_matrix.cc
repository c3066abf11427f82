#include "kernels/library/onednn/packed_matrix.h"

#include <algorithm>

#include "kernels/library/onednn/primitive.h"
#include "kernels/library/simd/simd.h"
#include "kernels/library/thread_memory.h"

namespace xpud::kernels::onednn {
namespace {

using Tag = dnnl::memory::format_tag;

constexpr size_t kPackBytesPerGroup = 1 << 20;

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

PackedMatrix::PackedMatrix(const WeightSource& source) : source_(source) {
  width_ = std::min<int64_t>(64, (source.n + 15) / 16 * 16);
  tag_ = PanelTag(width_, source.packed);
  panel_bytes_ = dnnl::memory::desc({source.k, width_}, TypeOf(source.packed), tag_).get_size();
  const int64_t panels = (source.n + width_ - 1) / width_;
  const size_t bytes = panel_bytes_ * static_cast<size_t>(panels);
  Allocate(bytes, static_cast<uint32_t>(std::clamp<int64_t>(bytes / kPackBytesPerGroup, 1, panels)));
  unpacked_groups_ = pack_groups();
}

bool PackedMatrix::PackPanel(int64_t first_column, int64_t columns) {
  const simd::MatrixView view{source_.data + first_column * source_.column * ops::SizeOf(source_.source),
                              source_.source, source_.row, source_.column};
  const bool as_is =
      source_.source == source_.packed && IsMatrix({0, source_.row, source_.column}, source_.k, columns);
  try {
    dnnl::memory::desc from({source_.k, columns}, TypeOf(source_.packed), dnnl::memory::dims{columns, 1});
    const void* data = view.data;
    if (as_is) {
      from = dnnl::memory::desc({source_.k, columns}, TypeOf(source_.packed),
                                dnnl::memory::dims{source_.row, source_.column});
    } else {
      std::byte* const dense = ThreadMemory(source_.k * columns * ops::SizeOf(source_.packed));
      simd::Best().gather({view, source_.k, columns, dense, source_.packed});
      data = dense;
    }
    const dnnl::memory::desc to({source_.k, columns}, TypeOf(source_.packed), tag_);
    dnnl::memory in(from, CpuEngine(), const_cast<void*>(data));
    dnnl::memory out(to, CpuEngine(), memory() + first_column / width_ * panel_bytes_);
    const dnnl::stream& stream = ThreadStream();
    dnnl::reorder(in, out).execute(stream, in, out);
  } catch (const dnnl::error&) {
    return false;
  }
  return true;
}

void PackedMatrix::Pack(uint32_t group) {
  ThreadStream();
  if (memory() == nullptr) return;
  const int64_t panels = (source_.n + width_ - 1) / width_;
  const int64_t first = panels * group / pack_groups(), last = panels * (group + 1) / pack_groups();
  for (int64_t panel = first; panel < last; ++panel) {
    const int64_t column = panel * width_;
    if (!PackPanel(column, std::min(width_, source_.n - column))) return;
  }
  unpacked_groups_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace xpud::kernels::onednn
