// The element-wise kernel: out = f(inputs) over a collapsed iteration space.
//
// Arguments: each operand's pointer, or value if immediate (outputs, then inputs) | those of
// kernels/families/box_emission.h.
#pragma once

#include <array>
#include <vector>

#include "kernels/api/planner.h"
#include "kernels/compiler/formula.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/layout.h"

namespace xpud::kernels {

// What a key of this skeleton says.
struct MapKey {
  const ops::Row* row = nullptr;
  int variant = 0;  // see MapFormulaText
  ops::DType compute = ops::DType::kFloat32;
  int rank = 1;
  bool tiled = false;
  bool narrow = false;  // 32-bit index arithmetic (GPU)
  int block_log2 = 0;   // elements a lane (GPU)
  int operands = 0;
  std::array<ops::DType, kMaxOperands> dtypes{};
  std::array<Access, kMaxOperands> access{};

  KernelKey Pack() const;
  static MapKey Unpack(const KernelKey& key);
};

// The formula of a row, or a cheaper one that is equal for some immediate.
enum MapVariant : int { kAsWritten = 0, kSquare = 1, kCube = 2, kSquareRoot = 3, kReciprocal = 4 };
std::string_view MapFormulaText(const ops::Row& row, int variant);

// Inputs that are seeds or offsets of random numbers: taken as int64, whatever the compute type. A bit for
// each.
uint32_t SeedInputs(const Expression& expression);

class MapSkeleton : public Skeleton {
 public:
  std::string NameOf(const KernelKey& key) const override;
  std::string Describe(const KernelKey& key) const override;
  absl::Status Emit(const KernelKey& key, const std::string& name, Emitter& emitter) const override;
};

// Plans element-wise ops: collapses the operands' layouts, picks the kernel, cuts the work into slices.
// Engine thread only.
class MapPlanner : public Planner {
 public:
  explicit MapPlanner(KernelCache& cache) : cache_(cache) {}

  bool Serves(ops::Family family) const override { return family == ops::Family::kMap; }
  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  // What a row's formula says, found on first use.
  struct Traits {
    bool known = false;
    bool uses_index = false;  // its position or random numbers: dimensions keep their order
    bool random_integers = false;
    uint32_t seeds = 0;
    float nanoseconds = 0;  // of arithmetic, an element
  };

  absl::StatusOr<const Traits*> TraitsOf(const ops::Row& row);
  void ChooseTypes(const OpCall& call, const Traits& traits, MapKey& key) const;
  void PushArguments(const OpCall& call, const MapKey& key, uint32_t seeds, Launch& launch) const;

  KernelCache& cache_;
  const MapSkeleton skeleton_;
  std::vector<Traits> traits_;  // by row number
};

}  // namespace xpud::kernels
