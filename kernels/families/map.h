// The element-wise kernel: out = f(inputs) over a collapsed iteration space (box_emission.h).
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/api/planner.h"
#include "kernels/compiler/formulas.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/box_emission.h"

namespace xpud::kernels {

// The key of the skeleton.
struct MapKey {
  const ops::Row* row = nullptr;
  int variant = 0;  // see MapFormulaText
  ops::DType compute = ops::DType::kFloat32;
  int rank = 1;
  bool tiled = false;
  bool narrow = false;  // 32-bit index arithmetic (GPU)
  int block_log2 = 0;   // elements of a lane (GPU)
  int operands = 0;
  std::array<ops::DType, kMaxOperands> dtypes{};  // of an immediate: the type in which it is passed
  std::array<Access, kMaxOperands> access{};

  std::span<const Access> accesses() const { return {access.data(), static_cast<size_t>(operands)}; }

  void Visit(auto& visit) {
    visit(row, kRowBits);
    visit(variant, 3);
    visit(compute, 4);
    visit(rank, 4);
    visit(tiled, 1);
    visit(narrow, 1);
    visit(block_log2, 2);
    visit(operands, 4);
    for (size_t o = 0; o < static_cast<size_t>(operands); ++o) {
      visit(dtypes[o], 4);
      visit(access[o], 2);
    }
  }
  bool operator==(const MapKey&) const = default;
};

template <typename Side>
struct MapArguments {
  // Each operand is in one of the two. Outputs, then inputs.
  std::array<typename Side::Pointer, kMaxOperands> pointers;
  std::array<typename Side::Immediate, kMaxOperands> immediates;
  BoxArguments<Side> box;

  void Visit(const MapKey& key, auto& visit) {
    for (size_t o = 0; o < static_cast<size_t>(key.operands); ++o) {
      if (key.access[o] == Access::kImmediate) {
        visit.Immediate(immediates[o], ScalarOf(key.dtypes[o]));
      } else {
        visit(pointers[o]);
      }
    }
    box.Visit(key.rank, key.accesses(), visit);
  }
};

// Returns the formula of a row, or a cheaper one that is equal for some immediates.
enum MapVariant : int { kAsWritten = 0, kSquare = 1, kCube = 2, kSquareRoot = 3, kReciprocal = 4 };
std::string_view MapFormulaText(const ops::Row& row, int variant);

// Returns a bit for each input that is a seed or an offset of random numbers. These are int64 for any compute
// type.
uint32_t SeedInputs(const Expression& expression);

class MapSkeleton : public SkeletonOf<MapKey, ops::Family::kMap, MapArguments> {
 public:
  std::string Name(const MapKey& key) const override { return NameWith("map_", *key.row); }
  std::string_view Formula(const MapKey& key) const override { return MapFormulaText(*key.row, key.variant); }
  absl::Status EmitBody(const MapKey& key, const MapArguments<Emitted>& arguments, Emitter& e) const override;
};

// Plans element-wise ops: collapses the operands' layouts, chooses the kernel, cuts the work into slices.
// The library's thread only.
class MapPlanner : public Planner {
 public:
  explicit MapPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

  // How a row computes operands that are a line, or one element for all of a line.
  struct Line {
    MapKey key;
    bool ordered = false;   // the formula uses the position or random numbers
    bool costly = false;    // a GPU's lane computes one element
    float nanoseconds = 0;  // of an element
  };
  absl::StatusOr<Line> LineOf(const OpCall& call, std::span<const Access> access);

 private:
  // Properties of a row's formula, determined at first use.
  struct Traits {
    bool known = false;
    bool uses_index = false;  // uses the position or random numbers, so dimensions keep their order
    bool random_integers = false;
    uint32_t seeds = 0;
    float nanoseconds = 0;  // of arithmetic for an element
  };

  absl::StatusOr<const Traits*> TraitsOf(const ops::Row& row);
  void ChooseTypes(const OpCall& call, const Traits& traits, MapKey& key) const;
  void ChooseCompute(const OpCall& call, const Traits& traits, MapKey& key) const;

  KernelCache& cache_;
  const MapSkeleton skeleton_;
  std::vector<Traits> traits_;  // by row number
};

}  // namespace xpud::kernels
