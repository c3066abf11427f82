// A matrix of weights in packed column panels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <oneapi/dnnl/dnnl.hpp>

#include "kernels/library/matmul/matmul_problem.h"
#include "kernels/library/onednn/packed_weights.h"

namespace xpud::kernels::onednn {

// A matrix of weights to pack: b[k,n].
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

// The panels are side by side.
class PackedMatrix : public PackedWeights {
 public:
  explicit PackedMatrix(const WeightSource& source);

  dnnl::memory::format_tag tag() const { return tag_; }
  bool Ready() const { return unpacked_groups_.load(std::memory_order_acquire) == 0; }
  // Returns the packed columns from `column` on, which is a multiple of 64.
  const std::byte* Panel(int64_t column) const { return memory() + column / width_ * panel_bytes_; }

  void Pack(uint32_t group) override;

 private:
  bool PackPanel(int64_t first_column, int64_t columns);

  const WeightSource source_;
  int64_t width_ = 0;  // columns of a panel: divides 64, or covers the matrix
  size_t panel_bytes_ = 0;
  dnnl::memory::format_tag tag_ = dnnl::memory::format_tag::undef;
  std::atomic<uint32_t> unpacked_groups_;  // stays above 0 if packing failed
};

}  // namespace xpud::kernels::onednn
