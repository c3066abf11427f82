#include "proto/ops/families/compact.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

// Sizes beside one of 0 may be of any magnitude.
int64_t ElementsOf(const Operand& self) {
  for (int d = 0; d < self.rank; ++d)
    if (self.sizes[d] == 0) return 0;
  return self.numel();
}

int64_t BlocksOf(const Operand& self) {
  const int64_t elements = ElementsOf(self);
  return elements / kCountBlock + (elements % kCountBlock != 0 ? 1 : 0);
}

absl::Status CheckCount(const Call& call) {
  const auto count = Read<CountCall>(call);
  RETURN_IF_ERROR(NeedSameType(*count.ends, "ends", DType::kInt64));
  return NeedSizes(*count.ends, "ends", {BlocksOf(*count.self)});
}

absl::Status InferCount(const Call& call, std::span<Operand> outputs) {
  SetOutput(*Outputs<CountCall>(outputs).ends, DType::kInt64, {BlocksOf(*Read<CountCall>(call).self)});
  return absl::OkStatus();
}

absl::Status CheckCompact(const Call& call) {
  const auto compact = Read<CompactCall>(call);
  const Operand &out = *compact.out, &self = *compact.self;
  RETURN_IF_ERROR(NeedSizes(*compact.ends, "ends", {BlocksOf(self)}));
  RETURN_IF_ERROR(NeedSameType(out, "output", DType::kInt64));
  RETURN_IF_ERROR(NeedRank(out, "output", 2));
  RETURN_IF_ERROR(NeedSizes(out, "output", {out.sizes[0], self.rank}));
  if (out.sizes[0] <= ElementsOf(self)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("output ", Describe(out), " has more rows than self ", Describe(self), " has elements"));
}

absl::Status InferCompact(const Call& call, std::span<Operand> outputs) {
  Operand& out = *Outputs<CompactCall>(outputs).out;
  SetOutput(out, DType::kInt64, {out.sizes[0], Read<CompactCall>(call).self->rank});
  return absl::OkStatus();
}

Sample SampleOfCount(const Row&, DType type) {
  return SampleOf(CountCall<Sample::Tensor>{.ends = {{1}, DType::kInt64}, .self = {{2, 3}, type}});
}

Sample SampleOfCompact(const Row&, DType type) {
  return SampleOf(CompactCall<Sample::Tensor>{
      .out = {{4, 2}, DType::kInt64}, .self = {{2, 3}, type}, .ends = {{1}, DType::kInt64}});
}

}  // namespace

constinit const FamilyDescriptor kCountFamily = Described<CountCall>(
    {.name = "count", .title = "counts", .check = CheckCount, .infer = InferCount, .sample = SampleOfCount});
constinit const FamilyDescriptor kCompactFamily = Described<CompactCall>(
    {.name = "compact",
     .title = "compaction",
     .sized_by = "xpud::nonzero_ends",
     .check = CheckCompact,
     .infer = InferCompact,
     .index_limit = [](const Call& call) { return Read<CompactCall>(call).out->sizes[0] + 1; },
     .sample = SampleOfCompact});

}  // namespace xpud::ops
