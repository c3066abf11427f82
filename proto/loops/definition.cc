#include "proto/loops/definition.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/loops/codec.h"
#include "proto/ops/families/loop.h"

namespace xpud::loops {
namespace {

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool IsOutput(const Operand& operand) { return operand.role >= Role::kWritten; }

std::vector<uint32_t> OperandsOf(const Kernel& kernel, bool outputs) {
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < kernel.operands.size(); ++i)
    if (IsOutput(kernel.operands[i]) == outputs) numbers.push_back(i);
  return numbers;
}

absl::Status CheckOperand(const Operand& declared, const ops::Operand& given, uint32_t number) {
  const bool scalar = declared.role == Role::kScalar;
  if (given.immediate != scalar)
    return absl::InvalidArgumentError(absl::StrCat("operand ", number, " of the loop kernel is ",
                                                   scalar ? "a scalar" : "a tensor", ", not ",
                                                   given.immediate ? "a scalar" : "a tensor"));
  if (given.dtype != declared.type)
    return absl::InvalidArgumentError(absl::StrCat("operand ", number, " of the loop kernel is ",
                                                   View(ops::Info(declared.type).name), ", not ",
                                                   View(ops::Info(given.dtype).name)));
  return absl::OkStatus();
}

// Whether an index is checked where it is used, or something is asserted.
bool MayReport(const Kernel& kernel, const CallInfo& info) {
  for (size_t b = 0; b < kernel.bodies.size(); ++b) {
    const std::vector<Statement>& statements = kernel.bodies[b].statements;
    for (size_t i = 0; i < statements.size(); ++i) {
      const StatementKind kind = statements[i].kind;
      if (kind == StatementKind::kIndirect || kind == StatementKind::kAssert || info.bodies[b].guarded[i])
        return true;
    }
  }
  return false;
}

}  // namespace

std::vector<uint32_t> OutputsOf(const Kernel& kernel) { return OperandsOf(kernel, true); }
std::vector<uint32_t> InputsOf(const Kernel& kernel) { return OperandsOf(kernel, false); }

absl::StatusOr<std::shared_ptr<const Definition>> Definition::Create(std::string_view bytes,
                                                                     std::string_view name) {
  ASSIGN_OR_RETURN(Kernel kernel, Decode(bytes));
  ASSIGN_OR_RETURN(KernelInfo info, CheckKernel(kernel));
  return std::shared_ptr<const Definition>(new Definition(std::move(kernel), std::move(info), bytes, name));
}

CallCache::CallCache(std::shared_ptr<const Definition> definition) {
  found_.name = definition->name();
  for (const Operand& operand : definition->kernel().operands)
    if (IsOutput(operand)) found_.updated.push_back(operand.role == Role::kUpdated);
  found_.elements.assign(definition->kernel().operands.size(), 1);
  found_.definition = std::move(definition);
}

absl::StatusOr<const DefinedCall*> CallCache::Find(const ops::Call& call) {
  const Kernel& kernel = found_.definition->kernel();
  if (call.outputs.size() != found_.updated.size() ||
      call.outputs.size() + call.inputs.size() != kernel.operands.size())
    return absl::InvalidArgumentError(
        absl::StrCat("the loop kernel has ", found_.updated.size(), " outputs and ",
                     kernel.operands.size() - found_.updated.size(), " inputs, not ", call.outputs.size(),
                     " and ", call.inputs.size()));
  bool same = std::exchange(is_valid_, false);  // until the call is found: a refused one leaves some elements
  size_t outputs = 0, inputs = 0;
  for (uint32_t i = 0; i < kernel.operands.size(); ++i) {
    const Operand& declared = kernel.operands[i];
    const ops::Operand& given = IsOutput(declared) ? call.outputs[outputs++] : call.inputs[inputs++];
    RETURN_IF_ERROR(CheckOperand(declared, given, i));
    const int64_t elements = given.numel();
    same &= std::exchange(found_.elements[i], elements) == elements;
  }
  const ops::Integers sizes = ops::Read<ops::LoopCall>(call).sizes;
  same &= sizes.size() == found_.sizes.size();
  for (size_t i = 0; same && i < sizes.size(); ++i) same = sizes[i] == found_.sizes[i];
  if (!same) {
    found_.sizes.clear();
    for (size_t i = 0; i < sizes.size(); ++i) found_.sizes.push_back(sizes[i]);
    RETURN_IF_ERROR(Prove());
  }
  is_valid_ = true;
  return &found_;
}

absl::StatusOr<const DefinedCall*> CallCache::Find(std::span<const int64_t> sizes,
                                                   std::span<const int64_t> elements) {
  if (elements.size() != found_.elements.size())
    return absl::InvalidArgumentError(
        absl::StrCat("the loop kernel has ", found_.elements.size(), " operands, not ", elements.size()));
  if (!std::exchange(is_valid_, false) || !std::ranges::equal(sizes, found_.sizes) ||
      !std::ranges::equal(elements, found_.elements)) {
    found_.sizes.assign(sizes.begin(), sizes.end());
    found_.elements.assign(elements.begin(), elements.end());
    RETURN_IF_ERROR(Prove());
  }
  is_valid_ = true;
  return &found_;
}

absl::Status CallCache::Prove() {
  const Kernel& kernel = found_.definition->kernel();
  found_.plan = nullptr;
  ASSIGN_OR_RETURN(found_.info, CheckCall(kernel, found_.definition->info(), found_.sizes, found_.elements));
  found_.operations = found_.info.operations;
  found_.reports = MayReport(kernel, found_.info);
  return absl::OkStatus();
}

}  // namespace xpud::loops
