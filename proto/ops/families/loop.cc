#include "proto/ops/families/loop.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// What does not depend on the kernel. Where that is known (Call::kernel), its operands were checked when it
// was found (proto/loops/definition.h).
absl::Status Check(const Call& call) {
  for (const auto operands : {call.outputs, call.inputs}) {
    for (const Operand& operand : operands) {
      if (!operand.is_tensor() || operand.rank == 1) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("an operand of a loop kernel has ", operand.rank, " dimensions, one is needed"));
    }
  }
  return absl::OkStatus();
}

double Cost(const Call& call) { return call.kernel == nullptr ? 0 : call.kernel->operations; }

}  // namespace

constinit const FamilyDescriptor kLoopFamily =
    Described<LoopCall>({.name = "loop",
                         .title = "loop kernels, which a client defines",
                         .takes_immediates = true,
                         .needs_dense = true,
                         .runs_kernel = true,
                         .check = Check,
                         .cost = Cost,
                         .sample = [](const Row&, DType type) -> Sample {
                           return {{{{6}, type}},
                                   {{{6}, type}, {{}, type, true, Number::Real(2)}},
                                   {Number::Integer(1), Number::Integer(1), Number::Integer(6)},
                                   {1, 2}};
                         }});

}  // namespace xpud::ops
