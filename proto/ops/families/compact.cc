// Where the nonzero elements are. Only the device knows how many there are, so there are two commands.
// Count: ends[B] <- self. Element b is the number of nonzero elements up to the end of block b; a block is
// kCountBlock elements in row-major order. The last one is the size of the result.
// Compact: out[size, rank] <- self, ends. Row r has the indices of nonzero element r. Block b writes rows
// ends[b - 1] to ends[b] - 1 and no others; a row that no block writes keeps what it held.
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kSelf[] = {{"self"}}, kEnds[] = {{"ends"}};
constexpr Parameter kSelfAndEnds[] = {{"self"}, {"ends", kIndices}};
constexpr Parameter kOut[] = {{"out", kSized}};

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
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "ends", DType::kInt64));
  return NeedSizes(call.outputs[0], "ends", {BlocksOf(call.inputs[0])});
}

absl::Status InferCount(const Call& call, std::span<Operand> outputs) {
  SetOutput(outputs[0], DType::kInt64, {BlocksOf(call.inputs[0])});
  return absl::OkStatus();
}

absl::Status CheckCompact(const Call& call) {
  const Operand &out = call.outputs[0], &self = call.inputs[0], &ends = call.inputs[1];
  RETURN_IF_ERROR(NeedSizes(ends, "ends", {BlocksOf(self)}));
  RETURN_IF_ERROR(NeedSameType(out, "output", DType::kInt64));
  RETURN_IF_ERROR(NeedRank(out, "output", 2));
  RETURN_IF_ERROR(NeedSizes(out, "output", {out.sizes[0], self.rank}));
  if (out.sizes[0] <= ElementsOf(self)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("output ", Describe(out), " has more rows than self ", Describe(self), " has elements"));
}

absl::Status InferCompact(const Call& call, std::span<Operand> outputs) {
  SetOutput(outputs[0], DType::kInt64, {outputs[0].sizes[0], call.inputs[0].rank});
  return absl::OkStatus();
}

}  // namespace

constinit const FamilyDescriptor kCountFamily = {.name = "count",
                                                 .title = "counts",
                                                 .outputs = kEnds,
                                                 .inputs = kSelf,
                                                 .check = CheckCount,
                                                 .infer = InferCount,
                                                 .sample = [](const Row&, DType type) -> Sample {
                                                   return {{{{1}, DType::kInt64}}, {{{2, 3}, type}}, {}};
                                                 }};
constinit const FamilyDescriptor kCompactFamily = {
    .name = "compact",
    .title = "compaction",
    .outputs = kOut,
    .inputs = kSelfAndEnds,
    .reads_outputs = true,
    .sized_by = "xpud::nonzero_ends",
    .check = CheckCompact,
    .infer = InferCompact,
    .index_limit = [](const Call& call) { return call.outputs[0].sizes[0] + 1; },
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{4, 2}, DType::kInt64}}, {{{2, 3}, type}, {{1}, DType::kInt64}}, {}};
    }};

}  // namespace xpud::ops
