// Matrices in packed column panels, the layout that oneDNN multiplies fastest.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/library/matmul/matmul_problem.h"
#include "kernels/library/onednn/packed_weights.h"

namespace xpud::kernels::onednn {

// A matrix to pack: b[k,n].
struct WeightSource {
  const std::byte* data = nullptr;
  int64_t k = 0, n = 0;
  int64_t row = 0, column = 0;
  ops::DType source = ops::DType::kFloat32;  // type in memory
  ops::DType packed = ops::DType::kFloat32;
  uint8_t unused[6] = {};

  std::string_view key() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};
static_assert(std::has_unique_object_representations_v<WeightSource>);

// How a matrix lies in panels, which are side by side. A plain value.
struct PanelLayout {
  int64_t k = 0, n = 0;
  ops::DType type = ops::DType::kFloat32;
  int64_t width = 0;  // columns of a panel: divides 64, or covers the matrix
  dnnl::memory::format_tag tag = dnnl::memory::format_tag::undef;

  static PanelLayout Of(int64_t k, int64_t n, ops::DType type);

  int64_t panels() const { return (n + width - 1) / width; }
  // Elements of a column; the last ones are padding.
  int64_t column_elements() const;
  size_t panel_bytes() const { return static_cast<size_t>(width * column_elements()) * ops::SizeOf(type); }
  size_t bytes() const { return panel_bytes() * static_cast<size_t>(panels()); }

  // Packing takes this many groups, of at most about 256 KiB each.
  int64_t groups() const;
  // Packs the part of `source` that belongs to a group. `target` is the begin of all panels.
  void Pack(const WeightSource& source, int64_t group, std::byte* target) const;

 private:
  int64_t RowsPerGroup() const;  // of a panel
  int64_t PanelsPerGroup() const;
  void PackBlock(const WeightSource& source, int64_t panel, int64_t first_row, std::byte* target) const;
};

// A matrix of weights that is kept packed.
class PackedMatrix : public PackedWeights {
 public:
  explicit PackedMatrix(const WeightSource& source);

  const PanelLayout& layout() const { return layout_; }
  bool Ready() const { return unpacked_groups_.load(std::memory_order_acquire) == 0; }
  // Returns the packed columns from `column` on, which is a multiple of 64.
  const std::byte* Panel(int64_t column) const {
    return memory() + column / layout_.width * static_cast<int64_t>(layout_.panel_bytes());
  }

  void Pack(uint32_t group) override;

 private:
  const WeightSource source_;
  const PanelLayout layout_;
  std::atomic<uint32_t> unpacked_groups_;  // stays above 0 if there was no memory
};

}  // namespace xpud::kernels::onednn
