// gather, index_select and embedding: out[i] = source[.., index[..], ..]. The kernel checks each index. An
// index out of range is reported in the error word; nothing is read for it, and its elements of out keep
// their values. If the index has stride 0 along the innermost dimension, each row is one check and one
// vectorised copy.
//
// Operands of the iteration space (kernels/families/box_emission.h): out, index, source, all stepped over
// out's dimensions. The source's stride is 0 along the indexed one.
#pragma once

#include <array>

#include "kernels/api/planner.h"
#include "kernels/compiler/kernel_cache.h"
#include "kernels/families/box_emission.h"

namespace xpud::kernels {

struct GatherKey {
  ops::DType element = ops::DType::kUInt8;  // an integer type of the element's size
  ops::DType index = ops::DType::kInt64;
  int rank = 1;
  bool narrow = false;  // 32-bit division of an element's number (GPU); addresses are always 64 bits
  bool pairs = false;   // a lane moves two elements of a row at once (GPU)
  std::array<Access, 3> access{};

  void Visit(auto& visit) {
    visit(element, 4);
    visit(index, 4);
    visit(rank, 4);
    visit(narrow, 1);
    visit(pairs, 1);
    for (Access& a : access) visit(a, 2);
  }
};

template <typename Side>
struct GatherArguments {
  typename Side::Pointer out, index, source, error_word;
  typename Side::Integer count, stride;  // of the source's indexed dimension
  BoxArguments<Side> box;

  void Visit(const GatherKey& key, auto& visit) {
    visit(out, index, source, error_word, count, stride);
    box.Visit(key.rank, key.access, visit);
  }
};

class GatherSkeleton : public SkeletonOf<GatherKey, ops::Family::kGather, GatherArguments> {
 public:
  std::string Name(const GatherKey&) const override { return "gather"; }
  absl::Status EmitBody(const GatherKey& key, const GatherArguments<Emitted>& arguments,
                        Emitter& e) const override;
};

// Plans gather, index_select and embedding. The library's thread only.
class GatherPlanner : public Planner {
 public:
  explicit GatherPlanner(KernelCache& cache) : cache_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  KernelCache& cache_;
  const GatherSkeleton skeleton_;
};

}  // namespace xpud::kernels
