#include "proto/ops/families/foreach.h"

#include <array>
#include <iterator>

#include "absl/status/statusor.h"
#include "proto/base/status_macros.h"
#include "proto/ops/check.h"
#include "proto/ops/operand_lists.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

constexpr size_t kMost = internal::kDescription<ForeachCall>.input_count;

// Returns the row with that number. It must be one of `family` with one output.
absl::StatusOr<const Row*> AppliedRow(int64_t number, Family family) {
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
  ASSIGN_OR_RETURN(const Row* const row, AppliedRow(Read<ForeachCall>(call).row, Family::kMap));
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
  ASSIGN_OR_RETURN(const Row* const row, AppliedRow(Read<ForeachReduceCall>(call).row, Family::kReduce));
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

constinit const FamilyDescriptor kForeachFamily =
    Described<ForeachCall>({.name = "foreach",
                            .title = "maps of tensor lists",
                            .takes_immediates = true,
                            .lists_correspond = true,
                            .check = Check,
                            .sample = [](const Row&, DType type) -> Sample {
                              return {{{{2, 3}, type}, {{2}, type}},
                                      {{{2, 3}, type}, {{2}, type}, {{2, 3}, type}, {{2}, type}},
                                      {Number::Integer(RowOf("mul.Tensor").number)},
                                      {2, 2, 2, 0, 0, 0}};
                            }});

constinit const FamilyDescriptor kForeachReduceFamily =
    Described<ForeachReduceCall>({.name = "foreach_reduce",
                                  .title = "reductions of tensor lists",
                                  .lists_correspond = true,
                                  .check = CheckReduce,
                                  .sample = [](const Row&, DType type) -> Sample {
                                    return {{{{}, type}, {{}, type}},
                                            {{{2, 3}, type}, {{2}, type}},
                                            {Number::Integer(RowOf("amax").number)},
                                            {2, 2}};
                                  }});

}  // namespace xpud::ops
