// Brings the tensors of a call into the layout and type of a library, and its result back. The library's
// thread only.
#pragma once

#include <span>

#include "kernels/api/planner.h"
#include "kernels/library/convolution/convolution_problem.h"

namespace xpud::kernels::convolution {

class OperandCopies {
 public:
  // `maps` plans copies and sums. `type` and `layout` are what the library reads and writes.
  OperandCopies(Planner& maps, Workspace workspace, LaunchList& launches, ops::DType type, Layout layout)
      : maps_(maps), workspace_(workspace), launches_(launches), type_(type), layout_(layout) {}

  // Returns the operand's values: itself, or a copy in workspace.
  absl::StatusOr<std::byte*> Read(const Operand& operand);
  // Returns a tensor for the library to write: `out` itself, or one like it in workspace.
  absl::StatusOr<Operand> Result(const Operand& out);
  // Plans whatever is left to do between the result and `out`: a copy, the sum with a row for the channels
  // (null for none).
  absl::Status Write(const Operand& result, const Operand& out, const Operand* bias);

  // kCompiling if the kernel of a copy is not ready.
  Readiness readiness() const { return readiness_; }

 private:
  // Compiles all kernels before anything waits.
  absl::Status Map(const ops::Row& row, const Operand& out, std::span<const Operand> inputs);
  absl::StatusOr<Operand> Make(const Operand& like);

  Planner& maps_;
  const Workspace workspace_;
  LaunchList& launches_;
  const ops::DType type_;
  const Layout layout_;
  Readiness readiness_ = Readiness::kReady;
};

}  // namespace xpud::kernels::convolution
