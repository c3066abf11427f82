// A map or a reduction applied to each element of tensor lists. The attribute `row` is the wire number of its
// row, which gives the formula and the rules of each element.
// Foreach: out[i] <- row(a[i], b[i], ..). Inputs are tensors or immediates; a list of one serves all
// elements, and a tensor of rank 0 serves an output of any rank. ForeachReduce: out[i], of rank 0 <-
// row(self[i]) over all dimensions.
#include <array>
#include <iterator>

#include "absl/status/statusor.h"
#include "proto/base/status_macros.h"
#include "proto/ops/check.h"
#include "proto/ops/family.h"
#include "proto/ops/operand_lists.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr Parameter kOut[] = {{"out", kList}}, kSelf[] = {{"self", kList}};
constexpr Parameter kInputs[] = {{"a", kList},
                                 {"b", kList | kOptional},
                                 {"c", kList | kOptional},
                                 {"d", kList | kOptional},
                                 {"e", kList | kOptional}};
constexpr size_t kMost = std::size(kInputs);
constexpr Attribute kRow[] = {{"row", AttributeType::kInteger}};

// Returns the row that `call` applies. It must be one of `family` with one output.
absl::StatusOr<const Row*> AppliedRow(const Call& call, Family family) {
  const int64_t number = call.attributes[0].AsInteger();
  const Row* const row =
      number >= 0 && number <= kMaxRowNumber ? FindRow(static_cast<uint16_t>(number)) : nullptr;
  if (row == nullptr || row->family != family || row->outputs != 1 || row->inputs > kMost)
    return absl::InvalidArgumentError("its row cannot be applied to lists");
  return row;
}

absl::Status CheckLengths(const OperandLists& lists, const Row& row) {
  for (size_t list = 1; list < lists.lists(); ++list) {
    const size_t length = lists.length(list);
    const bool used = list <= row.inputs;
    if (used ? length != lists.size() && length != 1 : length != 0)
      return Invalid("the lengths of its tensor lists do not correspond");
  }
  return absl::OkStatus();
}

absl::Status Check(const Call& call) {
  ASSIGN_OR_RETURN(const Row* const row, AppliedRow(call, Family::kMap));
  const OperandLists lists(call);
  RETURN_IF_ERROR(CheckLengths(lists, *row));
  std::array<Operand, kMost> inputs;
  const Call one = {.row = row,
                    .compute = call.compute,
                    .outputs = {},
                    .inputs = {inputs.data(), row->inputs},
                    .attributes = {}};
  for (size_t i = 0; i < lists.size(); ++i) {
    for (size_t k = 0; k < row->inputs; ++k) inputs[k] = lists.InputAt(1 + k, i);
    Call element = one;
    element.outputs = {&lists.At(0, i), 1};
    RETURN_IF_ERROR(CheckCall(element));
  }
  return absl::OkStatus();
}

absl::Status CheckReduce(const Call& call) {
  ASSIGN_OR_RETURN(const Row* const row, AppliedRow(call, Family::kReduce));
  const OperandLists lists(call);
  if (lists.length(1) != lists.size()) return Invalid("the lengths of its tensor lists do not correspond");
  if (!Contains(row->dtypes, call.compute)) return Invalid("its row does not compute in this type");
  for (size_t i = 0; i < lists.size(); ++i) {
    RETURN_IF_ERROR(NeedType(lists.At(1, i), "input", row->dtypes));
    RETURN_IF_ERROR(NeedRank(lists.At(0, i), "output", 0));
  }
  return absl::OkStatus();
}

}  // namespace

constinit const FamilyDescriptor kForeachFamily = {
    .name = "foreach",
    .title = "maps of tensor lists",
    .outputs = kOut,
    .inputs = kInputs,
    .attributes = kRow,
    .lists = 6,
    .takes_immediates = true,
    .lists_correspond = true,
    .check = Check,
    .sample = [](const Row&, DType type) -> Sample {
      return {{{{2, 3}, type}, {{2}, type}},
              {{{2, 3}, type}, {{2}, type}, {{2, 3}, type}, {{2}, type}},
              {Number::Integer(RowOf("mul.Tensor").number)},
              {2, 2, 2, 0, 0, 0}};
    }};

constinit const FamilyDescriptor kForeachReduceFamily = {.name = "foreach_reduce",
                                                         .title = "reductions of tensor lists",
                                                         .outputs = kOut,
                                                         .inputs = kSelf,
                                                         .attributes = kRow,
                                                         .lists = 2,
                                                         .lists_correspond = true,
                                                         .check = CheckReduce,
                                                         .sample = [](const Row&, DType type) -> Sample {
                                                           return {{{{}, type}, {{}, type}},
                                                                   {{{2, 3}, type}, {{2}, type}},
                                                                   {Number::Integer(RowOf("amax").number)},
                                                                   {2, 2}};
                                                         }};

}  // namespace xpud::ops
