#include "proto/ops/rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/ops/family.h"

namespace xpud::ops {

std::string Describe(const Operand& operand) {
  if (!operand.present) return "none";
  if (operand.immediate)
    return operand.number.is_integer ? absl::StrCat(operand.number.integer)
                                     : absl::StrCat(operand.number.real);
  return absl::StrCat(std::string(Info(operand.dtype).name), "[",
                      absl::StrJoin(operand.sizes.begin(), operand.sizes.begin() + operand.rank, ", "), "]");
}

absl::Status Invalid(std::string_view what) { return absl::InvalidArgumentError(std::string(what)); }

absl::Status NeedTensor(const Operand& operand, const char* role) {
  if (operand.is_tensor()) return absl::OkStatus();
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

absl::Status NeedType(const Operand& operand, const char* role, DTypeSet types) {
  if (Contains(types, operand.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " of type ", std::string(Info(operand.dtype).name), " is not supported"));
}

absl::Status NeedSameType(const Operand& operand, const char* role, DType type) {
  return operand.dtype == type ? absl::OkStatus() : NeedType(operand, role, SetOf(type));
}

absl::Status NeedSameSizes(const Operand& operand, const Operand& like, const char* role) {
  RETURN_IF_ERROR(NeedTensor(operand, role));
  if (HasSameSizes(operand, like)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " has sizes ", Describe(operand), ", those of ", Describe(like), " are needed"));
}

absl::Status NeedBroadcastTo(const Operand& operand, const Operand& out, const char* role) {
  if (BroadcastsTo(operand, out)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(role, " ", Describe(operand), " does not broadcast to ", Describe(out)));
}

absl::StatusOr<int> DimensionOf(int64_t dim, const Operand& operand) {
  if (dim >= 0 && dim < std::max<int64_t>(operand.rank, 1)) return static_cast<int>(dim);
  return absl::InvalidArgumentError(absl::StrCat("dimension ", dim, " of a tensor of rank ", operand.rank));
}

void SetOutput(Operand& out, DType dtype, std::initializer_list<int64_t> sizes) {
  out.dtype = dtype;
  out.rank = static_cast<uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), out.sizes.begin());
}

void SetOutputLike(Operand& out, const Operand& like) {
  out.dtype = like.dtype;
  out.rank = like.rank;
  out.sizes = like.sizes;
}

bool IsUpdated(const Call& call, size_t output) {
  if (call.kernel != nullptr) return call.kernel->updated[output];
  size_t first = 0;  // output of the parameter
  const uint16_t* length = call.lists.data();
  for (const Parameter& parameter : DescriptorOf(*call.row).outputs) {
    first += parameter.is(kList) ? *length++ : 1;
    if (output < first) return parameter.is(kUpdated);
  }
  return false;
}

double CostOf(const Call& call) {
  const FamilyDescriptor& family = DescriptorOf(*call.row);
  if (family.cost != nullptr) return family.cost(call);
  double elements = 0;
  for (const auto operands : {call.outputs, call.inputs})
    for (const Operand& operand : operands)
      if (operand.is_tensor()) elements += static_cast<double>(operand.numel());
  return elements;
}

}  // namespace xpud::ops
