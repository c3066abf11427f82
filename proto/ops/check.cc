#include "proto/ops/check.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

std::string Name(const Row& row) { return std::string(row.aten.substr(0, row.aten.find('|'))); }

bool IsDense(const Operand& operand) {
  int64_t expected = 1;
  for (int d = operand.rank - 1; d >= 0; --d) {
    if (operand.sizes[d] != 1 && operand.strides[d] != expected) return false;
    expected *= operand.sizes[d];
  }
  return true;
}

absl::Status CheckDense(const Call& call) {
  for (const auto operands : {call.outputs, call.inputs}) {
    for (const Operand& operand : operands) {
      if (operand.is_tensor() && operand.numel() > 0 && !IsDense(operand))
        return Invalid("all tensors of this op must be row-major without gaps");
    }
  }
  return absl::OkStatus();
}

// For families with tensor lists: the number of operands on one side, including the lengths of its lists.
size_t CountOf(std::span<const Parameter> parameters, const uint16_t*& length) {
  size_t count = 0;
  for (const Parameter& parameter : parameters) count += parameter.is(kList) ? *length++ : 1;
  return count;
}

absl::Status CheckLists(const Call& call, const FamilyDescriptor& family) {
  if (call.lists.size() != family.lists) return Invalid("the lengths of its tensor lists are missing");
  const uint16_t* length = call.lists.data();
  if (CountOf(family.outputs, length) != call.outputs.size() ||
      CountOf(family.inputs, length) != call.inputs.size())
    return Invalid("the lengths of its tensor lists do not fit its operands");
  for (const Operand& output : call.outputs) RETURN_IF_ERROR(NeedTensor(output, "operand of a list"));
  for (const Operand& input : call.inputs) {
    if (!(input.immediate && family.takes_immediates))
      RETURN_IF_ERROR(NeedTensor(input, "operand of a list"));
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const Call& call, const FamilyDescriptor& family) {
  const size_t most = call.row->outputs;
  if (call.outputs.empty() || call.outputs.size() > most)
    return absl::InvalidArgumentError(absl::StrCat(call.outputs.size(), " outputs, ", most, " are allowed"));
  for (size_t i = 0; i < most; ++i) {
    const bool optional = i < family.outputs.size() && family.outputs[i].is(kOptional);
    if (i >= call.outputs.size()) {
      if (!optional) return Invalid("an output is missing");
    } else if (!optional && !call.outputs[i].is_tensor()) {
      return NeedTensor(call.outputs[i], "output");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const Call& call, const FamilyDescriptor& family) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Operand& input = call.inputs[i];
    if (!input.present && i + call.row->optional < call.row->inputs) return Invalid("an input is missing");
    if (input.immediate && !family.takes_immediates) return Invalid("only maps take immediates as inputs");
    if (i < family.inputs.size() && family.inputs[i].is(kIndices) && input.present) {
      RETURN_IF_ERROR(NeedTensor(input, "index"));
      RETURN_IF_ERROR(NeedType(input, "index", kIndexTypes));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAttributes(const Call& call, const FamilyDescriptor& family) {
  size_t least = 0;
  for (const Attribute& attribute : family.attributes) {
    if (IsList(attribute.type)) return absl::OkStatus();  // the decoder checks the lengths of lists
    least += attribute.required ? 1 : 0;
  }
  if (call.attributes.size() >= least && call.attributes.size() <= family.attributes.size())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(call.attributes.size(), " attributes, ", family.attributes.size(), " are needed"));
}

absl::Status CheckTypes(const Call& call, const FamilyDescriptor& family) {
  const Row& row = *call.row;
  if (family.runs_kernel) return absl::OkStatus();  // the kernel has types of its own
  if (family.lists > 0 && call.inputs.empty()) return Invalid("its list of inputs is empty");
  if (!family.inputs.empty()) return NeedType(call.inputs[family.typed_input], "input", row.dtypes);
  const bool any =
      row.types == TypeRule::kAny || row.types == TypeRule::kFloat || row.types == TypeRule::kSum;
  if (any || Contains(row.dtypes, call.compute)) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat("\"", Name(row), "\" not implemented for '", std::string(Info(call.compute).name), "'"));
}

}  // namespace

absl::Status CheckCall(const Call& call) {
  const FamilyDescriptor& family = DescriptorOf(*call.row);
  if (family.lists > 0) {
    RETURN_IF_ERROR(CheckLists(call, family));
  } else {
    RETURN_IF_ERROR(CheckOutputs(call, family));
    RETURN_IF_ERROR(CheckInputs(call, family));
  }
  RETURN_IF_ERROR(CheckTypes(call, family));
  RETURN_IF_ERROR(CheckAttributes(call, family));
  if (family.needs_dense) RETURN_IF_ERROR(CheckDense(call));
  return family.check(call);
}

std::string Describe(const Call& call) {
  std::string text = call.kernel != nullptr
                         ? absl::StrCat("loop kernel ",
                                        absl::string_view(call.kernel->name.data(), call.kernel->name.size()))
                         : Name(*call.row);
  text += "(";
  constexpr size_t kMaxNamed = 8;
  for (size_t i = 0; i < std::min(call.inputs.size(), kMaxNamed); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", Describe(call.inputs[i]));
  if (call.inputs.size() > kMaxNamed) absl::StrAppend(&text, ", ", call.inputs.size() - kMaxNamed, " more");
  return text + ")";
}

uint64_t WordingOf(const Call& call) {
  uint64_t wording = reinterpret_cast<uint64_t>(call.row);
  const auto add = [&](auto value) {
    wording = (wording ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15;
    wording ^= wording >> 32;
  };
  if (call.kernel != nullptr) add(std::hash<std::string_view>()(call.kernel->name));
  for (const Operand& operand : call.inputs) {
    add(operand.present | operand.immediate << 1 | operand.rank << 2 | static_cast<int>(operand.dtype) << 8);
    for (int d = 0; d < operand.rank; ++d) add(operand.sizes[d]);
    if (!operand.immediate) continue;
    add(operand.number.is_integer ? operand.number.integer : std::bit_cast<int64_t>(operand.number.real));
  }
  return wording;
}

}  // namespace xpud::ops
