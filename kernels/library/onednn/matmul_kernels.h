// The HOST kernels of kMatmul: the library's thread plans their launches, and the device's workers run
// them.
#pragma once

#include "kernels/api/kernel_store.h"
#include "kernels/library/onednn/matmul_plan.h"

namespace xpud::kernels::onednn {

class MatmulKernels {
 public:
  explicit MatmulKernels(KernelStore& store);

  // Runs the plan's tiles, `tiles_per_group` in a group. `packed` may be nullptr.
  void LaunchProduct(const MatmulPlan& plan, const MatmulOperands& operands, PackedMatrix* packed,
                     uint32_t tiles_per_group, LaunchList& launches) const;
  // As above, but the launch does not point to a plan. The process that runs it creates one, and keeps it for
  // a while.
  void LaunchUnplanned(const MatmulPlan& plan, const MatmulOperands& operands, PackedMatrix* packed,
                       uint32_t tiles_per_group, LaunchList& launches) const;
  void LaunchPack(PackedWeights& weights, const PackedWeights::Groups& groups, LaunchList& launches) const;
  // Packs a batch of matrices; the panels of each follow those of the one before.
  struct Panels {
    WeightSource source;                  // the first one
    int64_t batch = 1, source_batch = 0;  // number and stride
    std::byte* target = nullptr;

    PanelLayout layout() const { return PanelLayout::Of(source.k, source.n, source.packed); }
  };
  void LaunchPanels(const Panels& panels, LaunchList& launches) const;
  // target[batch, rows, columns] (no gaps) = source, converted to target_type.
  struct Copy {
    const void* source = nullptr;
    Strides strides;
    int64_t batch = 1, rows = 0, columns = 0;
    ops::DType source_type = ops::DType::kFloat32, target_type = ops::DType::kFloat32;
    void* target = nullptr;
  };
  void LaunchCopy(const Copy& copy, LaunchList& launches) const;

 private:
  template <typename First>
  static void LaunchTiles(const Kernel* kernel, const First& first, const MatmulPlan& plan,
                          const MatmulOperands& operands, PackedMatrix* packed, uint32_t tiles_per_group,
                          LaunchList& launches);

  const Kernel* product_;
  const Kernel* unplanned_;
  const Kernel* pack_;
  const Kernel* panels_;
  const Kernel* copy_;
};

}  // namespace xpud::kernels::onednn
