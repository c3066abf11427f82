// The element-wise kernel: out = f(inputs) over a collapsed iteration space.
//
// Arguments: each operand's pointer, or value if immediate (outputs, then inputs) | those of
// kernels/families/box_emission.h.
#pragma once

#include <array>

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

}  // namespace xpud::kernels
