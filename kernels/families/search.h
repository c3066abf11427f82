// Binary searches: for each element of self, the number of elements of a sorted line that are less than it,
// or not greater. A NaN is found after all elements, as in PyTorch.
//
// Operands of the iteration space (kernels/families/box_emission.h): out, self, the line's first element, and
// the first position of its sorter; the last two do not move along self's last dimension. A position out of
// range is reported, and position 0 is read for it.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/box_emission.h"

namespace xpud::kernels {

struct SearchKey {
  ops::DType type = ops::DType::kFloat32;
  ops::DType out = ops::DType::kInt64;
  ops::DType sorter = ops::DType::kInt64;  // of its positions
  bool right = false;
  bool sorts = false;  // there is a sorter
  bool narrow = false;
  int rank = 1;
  std::array<Access, 4> access{};

  void Visit(auto& visit) {
    for (ops::DType* const dtype : {&type, &out, &sorter}) visit(*dtype, 4);
    for (bool* const flag : {&right, &sorts, &narrow}) visit(*flag, 1);
    visit(rank, 4);
    for (Access& a : access) visit(a, 2);
  }
};

template <typename Side>
struct SearchArguments {
  typename Side::Pointer out, self, line, sorter, error_word;
  typename Side::Integer length, stride, sorter_stride;  // of the line
  BoxArguments<Side> box;

  void Visit(const SearchKey& key, auto& visit) {
    visit(out, self, line, length, stride);
    if (key.sorts) visit(sorter, error_word, sorter_stride);
    box.Visit(key.rank, key.access, visit);
  }
};

class SearchSkeleton : public SkeletonOf<SearchKey, ops::Family::kSearch, SearchArguments> {
 public:
  std::string Name(const SearchKey&) const override { return "search"; }
  absl::Status EmitBody(const SearchKey& key, const SearchArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// The library's thread only.
class SearchPlanner : public Planner {
 public:
  explicit SearchPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const SearchSkeleton skeleton_;
};

}  // namespace xpud::kernels
