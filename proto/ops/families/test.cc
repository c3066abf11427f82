// Kernels that misbehave, for tests of the daemon: out[S] (in place) <- self, the same tensor, with at least
// one element.
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out"}}, kSelf[] = {{"self"}};
constexpr Attribute kGroups[] = {{.name = "groups",
                                  .type = AttributeType::kInteger,
                                  .required = false,
                                  .value = 1}};  // how many groups run

absl::Status Check(const Call& call) {
  constexpr int64_t kMaxGroups = 1 << 20;
  RETURN_IF_ERROR(NeedSameSizes(call.inputs[0], call.outputs[0], "input"));
  if (call.outputs[0].numel() == 0) return Invalid("the tensor is empty");
  if (call.attributes.empty()) return absl::OkStatus();
  const int64_t groups = call.attributes[0].AsInteger();
  return groups >= 1 && groups <= kMaxGroups ? absl::OkStatus() : Invalid("1 to 2^20 groups are needed");
}

}  // namespace

constinit const FamilyDescriptor kTestFamily = {
    .name = "test",
    .title = "",
    .outputs = kOut,
    .inputs = kSelf,
    .attributes = kGroups,
    .reads_outputs = true,
    .check = Check,
    .sample = [](const Row&, DType type) -> Sample { return {{{{2}, type}}, {{{2}, type}}, {}}; }};

}  // namespace xpud::ops
