// Loop kernels as bytes. Equal kernels have equal bytes, and only those: numbers are as short as they can be,
// and nothing is left over.
//
// A number is 7 bits to a byte, the lowest first, with the highest bit set in all bytes but the last; signed
// ones are zigzag, reals are 8 bytes. The order is that of the members in kernel.h, each list after its
// length; a statement has its kind and then what VisitFields names.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/loops/kernel.h"

namespace xpud::loops {

// The first byte. A daemon refuses others.
inline constexpr uint8_t kVersion = 1;

std::string Encode(const Kernel& kernel);

// Returns InvalidArgument for anything that Encode does not write, with the offset. Counts are bounded by
// kernel.h; what the numbers refer to is not checked: see CheckKernel.
absl::StatusOr<Kernel> Decode(std::string_view bytes);

// Calls the visitor with each field of a statement in the order of the wire. `Statement` may be const. Fields
// that decide which others there are come before them, so a visitor may fill them in.
void VisitFields(auto& statement, auto& visit) {
  auto& s = statement;
  const auto values = [&](int count) {
    for (int i = 0; i < count; ++i) visit.Value(s.values[static_cast<size_t>(i)]);
  };
  switch (s.kind) {
    case StatementKind::kConstant:
      visit.Type(s.type);
      if (ops::IsFloating(s.type)) {
        visit.Real(s.real);
      } else {
        visit.Integer(s.integer);
      }
      return;
    case StatementKind::kScalar:
      visit.Operand(s.operand);
      return;
    case StatementKind::kLoad:
      visit.Operand(s.operand);
      visit.Index(s.index);
      return;
    case StatementKind::kStore:
    case StatementKind::kAtomicAdd:
      visit.Operand(s.operand);
      visit.Index(s.index);
      return values(1);
    case StatementKind::kCall: {
      visit.Function(s.function);
      visit.Type(s.type);
      const FunctionInfo* const info = FindFunction(static_cast<uint64_t>(s.function));
      return values(info == nullptr ? 0 : info->arity);
    }
    case StatementKind::kConvert:
    case StatementKind::kRound:
      visit.Type(s.type);
      return values(1);
    case StatementKind::kBitcast:
      visit.Type(s.from);
      visit.Type(s.type);
      return values(1);
    case StatementKind::kIndexValue:
      visit.Index(s.index);
      return;
    case StatementKind::kIndirect:
      visit.Index(s.bound);
      visit.Flag(s.flag);
      return values(1);
    case StatementKind::kReduce:
    case StatementKind::kScan:
      visit.Reduction(s.reduction);
      visit.Type(s.type);
      return values(InfoOf(s.reduction).takes);
    case StatementKind::kPart:
    case StatementKind::kMask:
      visit.Integer(s.integer);
      return values(1);
    case StatementKind::kUnmask:
      return values(3);
    case StatementKind::kRandom:
      visit.Integer(s.integer);
      visit.Type(s.type);
      return values(2);
    case StatementKind::kSearch:
      visit.Operand(s.operand);
      visit.Index(s.index);
      visit.Index(s.bound);
      visit.Flag(s.flag);
      return values(1);
    case StatementKind::kAssert:
      return values(1);
  }
}

}  // namespace xpud::loops
