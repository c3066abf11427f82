#include "proto/ops/families/test.h"

#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Check(const Call& call) {
  constexpr int64_t kMaxGroups = 1 << 20;
  const auto test = Read<TestCall>(call);
  RETURN_IF_ERROR(NeedSameSizes(*test.self, *test.out, "input"));
  if (test.out->numel() == 0) return Invalid("the tensor is empty");
  return test.groups >= 1 && test.groups <= kMaxGroups ? absl::OkStatus()
                                                       : Invalid("1 to 2^20 groups are needed");
}

Sample MakeSample(const Row&, DType type) {
  return SampleOf(TestCall<Sample::Tensor>{.out = {{2}, type}, .self = {{2}, type}});
}

}  // namespace

constinit const FamilyDescriptor kTestFamily =
    Described<TestCall>({.name = "test", .title = "", .check = Check, .sample = MakeSample});

}  // namespace xpud::ops
