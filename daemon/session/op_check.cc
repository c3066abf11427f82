#include "daemon/session/op_check.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"

namespace xpud::session {
namespace {

using kernels::OpCall;
using kernels::Operand;
using ops::DType;
using ops::Family;

std::string_view Name(const ops::Row& row) { return row.aten.substr(0, row.aten.find('|')); }
std::string Text(std::string_view text) { return std::string(text); }

std::string Describe(const Operand& operand) {
  if (!operand.present) return "none";
  const std::string type = Text(ops::Info(operand.dtype).name);
  if (operand.immediate)
    return operand.number.is_integer ? absl::StrCat(operand.number.integer)
                                     : absl::StrCat(operand.number.real);
  return absl::StrCat(type, "[",
                      absl::StrJoin(operand.sizes.begin(), operand.sizes.begin() + operand.rank, ", "), "]");
}

absl::Status Invalid(std::string_view what) { return absl::InvalidArgumentError(Text(what)); }

// ---- pieces

bool IsTensor(const Operand& operand) { return operand.present && !operand.immediate; }

absl::Status NeedTensor(const Operand& operand, const char* role) {
  if (IsTensor(operand)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(role, " must be a tensor"));
}

absl::Status NeedRank(const Operand& operand, const char* role, int rank) {
  RETURN_IF_ERROR(NeedTensor(operand, role));
  if (operand.rank == rank) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(role, " has rank ", operand.rank, ", ", rank, " is needed"));
}

absl::Status NeedSizes(const Operand& operand, const char* role, std::initializer_list<int64_t> sizes) {
  RETURN_IF_ERROR(NeedRank(operand, role, static_cast<int>(sizes.size())));
  bool same = true;
  for (int d = 0; d < operand.rank; ++d) same &= operand.sizes[d] == sizes.begin()[d];
  if (same) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " has sizes ", Describe(operand), ", [", absl::StrJoin(sizes, ", "), "] is needed"));
}

absl::Status NeedType(const Operand& operand, const char* role, ops::DTypeSet types) {
  if (ops::Contains(types, operand.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " of type ", Text(ops::Info(operand.dtype).name), " is not supported"));
}

absl::Status NeedSameType(const Operand& operand, const char* role, DType type) {
  return operand.dtype == type ? absl::OkStatus() : NeedType(operand, role, ops::SetOf(type));
}

// Inline, as ranks are small: std::equal would be a call.
bool SameSizes(const Operand& a, const Operand& b) {
  bool same = a.rank == b.rank;
  for (int d = 0; same && d < a.rank; ++d) same = a.sizes[d] == b.sizes[d];
  return same;
}

absl::Status NeedSameSizes(const Operand& operand, const Operand& like, const char* role) {
  RETURN_IF_ERROR(NeedTensor(operand, role));
  if (SameSizes(operand, like)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " has sizes ", Describe(operand), ", those of ", Describe(like), " are needed"));
}

bool IsDense(const Operand& operand) {
  int64_t expected = 1;
  for (int d = operand.rank - 1; d >= 0; --d) {
    if (operand.sizes[d] != 1 && operand.strides[d] != expected) return false;
    expected *= operand.sizes[d];
  }
  return true;
}

absl::Status NeedDense(const OpCall& call) {
  for (const auto operands : {call.outputs, call.inputs}) {
    for (const Operand& operand : operands) {
      if (operand.present && !operand.immediate && operand.numel() > 0 && !IsDense(operand)) {
        return Invalid("all tensors of this op must be row-major without gaps");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status NeedAttributes(const OpCall& call, size_t count) {
  if (call.attributes.size() == count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call.attributes.size(), " attributes, ", count, " are needed"));
}

absl::StatusOr<int> Dim(const OpCall& call, const Operand& operand) {
  RETURN_IF_ERROR(NeedAttributes(call, 1));
  const int64_t dim = call.attributes[0].AsInteger();
  if (dim >= 0 && dim < std::max<int64_t>(operand.rank, 1)) return static_cast<int>(dim);
  return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " of a tensor of rank ", operand.rank));
}

// Each size equal or 1 (an expanded dimension has the output's size and stride 0).
bool BroadcastsTo(const Operand& operand, const Operand& out) {
  bool fits = operand.rank == out.rank;
  for (int d = 0; fits && d < out.rank; ++d) fits = operand.sizes[d] == out.sizes[d] || operand.sizes[d] == 1;
  return fits;
}

absl::Status NeedBroadcastTo(const Operand& operand, const Operand& out, const char* role) {
  if (BroadcastsTo(operand, out)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " ", Describe(operand), " does not broadcast to ", Describe(out)));
}

// ---- families

absl::Status CheckMap(const OpCall& call) {
  const Operand& first = call.outputs[0];
  for (const Operand& out : call.outputs.subspan(1)) RETURN_IF_ERROR(NeedSameSizes(out, first, "output"));
  for (const Operand& input : call.inputs) {
    if (!input.present) return Invalid("an input is missing");
    if (!input.immediate && !BroadcastsTo(input, first)) return NeedBroadcastTo(input, first, "input");
  }
  return absl::OkStatus();
}

absl::Status CheckReduce(const OpCall& call) {
  const Operand& a = call.inputs[0];
  for (const Operand& out : call.outputs) {
    RETURN_IF_ERROR(NeedRank(out, "output", a.rank));
    for (int d = 0; d < a.rank; ++d) {
      if (out.sizes[d] != a.sizes[d] && out.sizes[d] != 1) {
        return absl::InvalidArgumentError(
            absl::StrCat("output ", Describe(out), " is no reduction of ", Describe(a)));
      }
    }
  }
  return call.attributes.size() <= 1 ? absl::OkStatus() : Invalid("a reduction takes at most one attribute");
}

absl::Status CheckSoftmax(const OpCall& call) {
  for (const Operand& input : call.inputs) RETURN_IF_ERROR(NeedSameSizes(input, call.outputs[0], "input"));
  return Dim(call, call.outputs[0]).status();
}

absl::Status CheckLayerNorm(const OpCall& call) {
  RETURN_IF_ERROR(NeedAttributes(call, 1));
  const Operand& x = call.inputs[0];
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], x, "output"));
  RETURN_IF_ERROR(NeedSizes(call.outputs[1], "mean", {x.sizes[0]}));
  RETURN_IF_ERROR(NeedSizes(call.outputs[2], "rstd", {x.sizes[0]}));
  if (call.inputs[1].present) RETURN_IF_ERROR(NeedSizes(call.inputs[1], "weight", {x.sizes[1]}));
  if (call.inputs[2].present) RETURN_IF_ERROR(NeedSizes(call.inputs[2], "bias", {x.sizes[1]}));
  return NeedDense(call);
}

absl::Status CheckLayerNormBackward(const OpCall& call) {
  const Operand& x = call.inputs[1];
  RETURN_IF_ERROR(NeedRank(x, "input", 2));
  RETURN_IF_ERROR(NeedSameSizes(call.inputs[0], x, "gradient"));
  RETURN_IF_ERROR(NeedSizes(call.inputs[2], "mean", {x.sizes[0]}));
  RETURN_IF_ERROR(NeedSizes(call.inputs[3], "rstd", {x.sizes[0]}));
  if (call.inputs[4].present) RETURN_IF_ERROR(NeedSizes(call.inputs[4], "weight", {x.sizes[1]}));
  RETURN_IF_ERROR(NeedSameSizes(call.outputs[0], x, "output"));
  RETURN_IF_ERROR(NeedSizes(call.outputs[1], "weight gradient", {x.sizes[1]}));
  RETURN_IF_ERROR(NeedSizes(call.outputs[2], "bias gradient", {x.sizes[1]}));
  return NeedDense(call);
}

// index_select: a rank-1 index replaces dimension `dim`; gather: the index has the output's sizes.
absl::Status CheckGather(const OpCall& call) {
  const Operand &out = call.outputs[0], &a = call.inputs[0], &index = call.inputs[1];
  ASSIGN_OR_RETURN(const int dim, Dim(call, a));
  RETURN_IF_ERROR(NeedTensor(index, "index"));
  RETURN_IF_ERROR(NeedType(index, "index", ops::kIndexTypes));
  RETURN_IF_ERROR(NeedSameType(out, "output", a.dtype));
  RETURN_IF_ERROR(NeedRank(out, "output", a.rank));
  const bool selects = index.rank == 1 && a.rank != 1;
  if (!selects && !SameSizes(index, out)) {
    return absl::InvalidArgumentError(
        absl::StrCat("output ", Describe(out), " for an index ", Describe(index)));
  }
  if (a.rank == 0 && index.numel() != 1)
    return absl::InvalidArgumentError(absl::StrCat("an index ", Describe(index), " into a scalar"));
  for (int d = 0; d < a.rank; ++d) {
    const int64_t wanted = d == dim ? (selects ? index.sizes[0] : out.sizes[d]) : a.sizes[d];
    if (selects ? out.sizes[d] != wanted : (d != dim && out.sizes[d] > wanted)) {
      return absl::InvalidArgumentError(
          absl::StrCat("output ", Describe(out), " does not fit input ", Describe(a)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckEmbedding(const OpCall& call) {
  const Operand &weight = call.inputs[0], &index = call.inputs[1];
  RETURN_IF_ERROR(NeedRank(weight, "weight", 2));
  RETURN_IF_ERROR(NeedRank(index, "index", 1));
  RETURN_IF_ERROR(NeedType(index, "index", ops::kIndexTypes));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", weight.dtype));
  return NeedSizes(call.outputs[0], "output", {index.sizes[0], weight.sizes[1]});
}

absl::Status CheckScatterAdd(const OpCall& call) {
  const Operand &out = call.outputs[0], &index = call.inputs[0], &source = call.inputs[1];
  RETURN_IF_ERROR(NeedAttributes(call, 1));
  RETURN_IF_ERROR(NeedRank(out, "output", 2));
  RETURN_IF_ERROR(NeedRank(index, "index", 1));
  RETURN_IF_ERROR(NeedType(index, "index", ops::kIndexTypes));
  RETURN_IF_ERROR(NeedSameType(source, "source", out.dtype));
  return NeedSizes(source, "source", {index.sizes[0], out.sizes[1]});
}

absl::Status CheckMatmul(const OpCall& call) {
  RETURN_IF_ERROR(NeedAttributes(call, 3));
  const Operand &out = call.outputs[0], &a = call.inputs[0], &b = call.inputs[1], &c = call.inputs[2];
  if (a.rank != 2 && a.rank != 3)
    return absl::InvalidArgumentError(absl::StrCat("a matrix of rank ", a.rank, ", 2 or 3 is needed"));
  RETURN_IF_ERROR(NeedRank(b, "second matrix", a.rank));
  RETURN_IF_ERROR(NeedRank(out, "output", a.rank));
  const int m = a.rank - 2, n = a.rank - 1;
  if (a.sizes[n] != b.sizes[m] || out.sizes[m] != a.sizes[m] || out.sizes[n] != b.sizes[n] ||
      (m == 1 && (a.sizes[0] != out.sizes[0] || b.sizes[0] != out.sizes[0]))) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(a), " times ", Describe(b), " does not give ", Describe(out)));
  }
  RETURN_IF_ERROR(NeedSameType(b, "second matrix", a.dtype));
  RETURN_IF_ERROR(NeedSameType(out, "output", a.dtype));
  if (!c.present) return absl::OkStatus();
  RETURN_IF_ERROR(NeedSameType(c, "addend", a.dtype));
  return NeedBroadcastTo(c, out, "addend");
}

absl::Status CheckAttention(const OpCall& call) {
  RETURN_IF_ERROR(NeedAttributes(call, 2));
  const Operand &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2], &mask = call.inputs[3];
  RETURN_IF_ERROR(NeedRank(q, "query", 4));
  RETURN_IF_ERROR(NeedRank(k, "key", 4));
  RETURN_IF_ERROR(NeedRank(v, "value", 4));
  const int64_t batch = q.sizes[0], heads = q.sizes[1], queries = q.sizes[2], keys = k.sizes[2];
  if (k.sizes[1] == 0 || heads % k.sizes[1] != 0)
    return absl::InvalidArgumentError(
        absl::StrCat(heads, " query heads are no multiple of ", k.sizes[1], " key heads"));
  RETURN_IF_ERROR(NeedSizes(k, "key", {batch, k.sizes[1], keys, q.sizes[3]}));
  RETURN_IF_ERROR(NeedSizes(v, "value", {batch, k.sizes[1], keys, v.sizes[3]}));
  RETURN_IF_ERROR(NeedSameType(k, "key", q.dtype));
  RETURN_IF_ERROR(NeedSameType(v, "value", q.dtype));
  RETURN_IF_ERROR(NeedSameType(call.outputs[0], "output", q.dtype));
  RETURN_IF_ERROR(NeedSizes(call.outputs[0], "output", {batch, heads, queries, v.sizes[3]}));
  if (call.outputs.size() > 1 && call.outputs[1].present) {
    RETURN_IF_ERROR(NeedSizes(call.outputs[1], "logsumexp", {batch, heads, queries}));
    RETURN_IF_ERROR(NeedSameType(call.outputs[1], "logsumexp", DType::kFloat32));
  }
  if (!mask.present) return absl::OkStatus();
  RETURN_IF_ERROR(NeedType(mask, "mask", ops::kBoolType | ops::SetOf(q.dtype)));
  return NeedSizes(mask, "mask", {batch, heads, queries, keys});
}

absl::Status CheckNllLoss(const OpCall& call) {
  RETURN_IF_ERROR(NeedAttributes(call, 2));
  const bool backward = call.row->outputs == 1;
  const size_t at = backward ? 1 : 0;
  const Operand &logp = call.inputs[at], &target = call.inputs[at + 1], &weight = call.inputs[at + 2];
  RETURN_IF_ERROR(NeedRank(logp, "input", 2));
  const int64_t rows = logp.sizes[0], classes = logp.sizes[1];
  RETURN_IF_ERROR(NeedSizes(target, "target", {rows}));
  RETURN_IF_ERROR(NeedType(target, "target", ops::kIndexTypes));
  if (weight.present) {
    RETURN_IF_ERROR(NeedSizes(weight, "weight", {classes}));
    RETURN_IF_ERROR(NeedSameType(weight, "weight", logp.dtype));
  }
  const bool none = call.attributes[0].AsInteger() == 0;
  const Operand& loss = backward ? call.inputs[0] : call.outputs[0];
  RETURN_IF_ERROR(none ? NeedSizes(loss, "loss", {rows}) : NeedSizes(loss, "loss", {}));
  RETURN_IF_ERROR(NeedSameType(loss, "loss", logp.dtype));
  if (backward) return NeedSizes(call.outputs[0], "output", {rows, classes});
  return NeedSizes(call.outputs[1], "total weight", {});
}

absl::Status CheckTest(const OpCall& call) {
  constexpr int64_t kMostGroups = 1 << 20;
  RETURN_IF_ERROR(NeedSameSizes(call.inputs[0], call.outputs[0], "input"));
  if (call.outputs[0].numel() == 0) return Invalid("the tensor is empty");
  if (call.attributes.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(NeedAttributes(call, 1));
  const int64_t groups = call.attributes[0].AsInteger();
  return groups >= 1 && groups <= kMostGroups ? absl::OkStatus() : Invalid("1 to 2^20 groups are needed");
}

absl::Status CheckFamily(const OpCall& call) {
  switch (call.row->family) {
    case Family::kMap:
      return CheckMap(call);
    case Family::kReduce:
      return CheckReduce(call);
    case Family::kSoftmax:
      return CheckSoftmax(call);
    case Family::kLayerNorm:
      return CheckLayerNorm(call);
    case Family::kLayerNormBackward:
      return CheckLayerNormBackward(call);
    case Family::kGather:
      return CheckGather(call);
    case Family::kEmbedding:
      return CheckEmbedding(call);
    case Family::kScatterAdd:
      return CheckScatterAdd(call);
    case Family::kMatmul:
      return CheckMatmul(call);
    case Family::kAttention:
      return CheckAttention(call);
    case Family::kNllLoss:
      return CheckNllLoss(call);
    case Family::kTest:
      return CheckTest(call);
  }
  return Invalid("the op's family is unknown");
}

absl::Status CheckCounts(const OpCall& call) {
  const ops::Row& row = *call.row;
  if (call.outputs.empty() || call.outputs.size() > row.outputs) {
    return absl::InvalidArgumentError(
        absl::StrCat(call.outputs.size(), " outputs, ", row.outputs, " are allowed"));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const bool optional = row.family == Family::kAttention && i == 1;
    if (!optional && !IsTensor(call.outputs[i])) return NeedTensor(call.outputs[i], "output");
  }
  if (call.outputs.size() < row.outputs && row.family != Family::kAttention)
    return Invalid("an output is missing");
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].present && i + row.optional < row.inputs) return Invalid("an input is missing");
    if (call.inputs[i].immediate && row.family != Family::kMap)
      return Invalid("only maps take immediates as inputs");
  }
  return absl::OkStatus();
}

absl::Status CheckTypes(const OpCall& call) {
  const ops::Row& row = *call.row;
  if (row.family == Family::kMap || row.family == Family::kReduce) {
    const bool any = row.types == ops::TypeRule::kAny || row.types == ops::TypeRule::kFloat ||
                     row.types == ops::TypeRule::kSum;
    if (!any && !ops::Contains(row.dtypes, call.compute)) {
      return absl::UnimplementedError(absl::StrCat("\"", Text(Name(row)), "\" not implemented for '",
                                                   Text(ops::Info(call.compute).name), "'"));
    }
    return absl::OkStatus();
  }
  const bool index_first = row.family == Family::kScatterAdd;
  return NeedType(call.inputs[index_first ? 1 : 0], "input", row.dtypes);
}

}  // namespace

std::string Describe(const OpCall& call) {
  std::string text = absl::StrCat(Text(Name(*call.row)), "(");
  for (size_t i = 0; i < call.inputs.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", Describe(call.inputs[i]));
  return text + ")";
}

uint64_t WordingOf(const OpCall& call) {
  uint64_t wording = reinterpret_cast<uint64_t>(call.row);
  const auto add = [&](auto value) {
    wording = (wording ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15;
    wording ^= wording >> 32;
  };
  for (const Operand& operand : call.inputs) {
    add(operand.present | operand.immediate << 1 | operand.rank << 2 | static_cast<int>(operand.dtype) << 8);
    for (int d = 0; d < operand.rank; ++d) add(operand.sizes[d]);
    if (!operand.immediate) continue;
    add(operand.number.is_integer ? operand.number.integer : std::bit_cast<int64_t>(operand.number.real));
  }
  return wording;
}

absl::Status CheckOp(const OpCall& call) {
  RETURN_IF_ERROR(CheckCounts(call));
  RETURN_IF_ERROR(CheckTypes(call));
  return CheckFamily(call);
}

}  // namespace xpud::session
