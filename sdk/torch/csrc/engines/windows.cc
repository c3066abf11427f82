#include "sdk/torch/csrc/engines/windows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

namespace xpud::shim {

at::Tensor MetaOf(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

at::Tensor EmptyAs(const at::Tensor& meta, const at::Tensor& like) {
  return at::empty_strided(meta.sizes(), meta.strides(), like.options().dtype(meta.scalar_type()));
}

at::Tensor EmptySpatial(const at::Tensor& self, c10::IntArrayRef spatial) {
  c10::SmallVector<int64_t, 5> sizes(self.sizes());
  std::copy(spatial.begin(), spatial.end(), sizes.end() - static_cast<ptrdiff_t>(spatial.size()));
  const bool batch = self.dim() == static_cast<int64_t>(spatial.size()) + 2;
  return at::empty(sizes, self.options(),
                   batch ? self.suggest_memory_format() : at::MemoryFormat::Contiguous);
}

bool HasPlanes(const at::Tensor& self, int64_t spatial) {
  if (self.dim() != spatial + 1 && self.dim() != spatial + 2) return false;
  for (int64_t d = self.dim() - spatial - 1; d < self.dim(); ++d)
    if (self.size(d) == 0) return false;
  return true;
}

bool HasSamePlanes(const at::Tensor& a, const at::Tensor& b, int64_t spatial) {
  const auto leading = static_cast<size_t>(std::max<int64_t>(a.dim() - spatial, 0));
  return a.dim() == b.dim() && a.sizes().slice(0, leading) == b.sizes().slice(0, leading);
}

}  // namespace xpud::shim
