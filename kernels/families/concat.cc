// Concatenation: copies each tensor into its part of the output, as a map of lists.
#include "proto/ops/families/concat.h"

#include <vector>

#include "kernels/families/foreach.h"
#include "kernels/families/planners.h"

namespace xpud::kernels {
namespace {

// The library's thread only.
class ConcatPlanner : public Planner {
 public:
  explicit ConcatPlanner(KernelCache& cache) : copies_(cache) {}

  absl::StatusOr<Readiness> Plan(const OpCall& call, Workspace workspace, LaunchList& launches) override;

 private:
  ForeachPlanner copies_;
  std::vector<Operand> parts_;  // of the output
};

absl::StatusOr<Readiness> ConcatPlanner::Plan(const OpCall& call, Workspace workspace, LaunchList& launches) {
  static const ops::Row& foreach = ops::RowOf("xpud::foreach"), &copy = ops::RowOf("_copy_from");
  const auto concat = ops::Read<ops::ConcatCall>(call);
  const auto dim = static_cast<size_t>(concat.dim);
  Operand part = *concat.out;
  parts_.clear();
  for (const Operand& tensor : call.inputs) {
    part.sizes[dim] = tensor.sizes[dim];
    parts_.push_back(part);
    part.data = static_cast<std::byte*>(part.data) +
                static_cast<size_t>(tensor.sizes[dim] * part.strides[dim]) * ops::SizeOf(part.dtype);
  }
  const auto count = static_cast<uint16_t>(parts_.size());
  const uint16_t lists[] = {count, count, 0, 0, 0, 0};
  const ops::Number row = ops::Number::Integer(copy.number);
  return copies_.Plan({.row = &foreach,
                       .compute = part.dtype,
                       .outputs = parts_,
                       .inputs = call.inputs,
                       .attributes = {&row, 1},
                       .lists = lists},
                      workspace, launches);
}

}  // namespace

constinit const PlannerFactory kConcatPlanner = MakePlanner<ConcatPlanner>;

}  // namespace xpud::kernels
