// Elementwise ops: out[S] <- inputs that broadcast to S (equal rank, each size equal or 1). Any input may be
// an immediate. The row's formula computes each element.
#include "proto/ops/family.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status Check(const Call& call) {
  const Operand& first = call.outputs[0];
  for (const Operand& out : call.outputs.subspan(1)) {
    if (absl::Status status = NeedSameSizes(out, first, "output"); !status.ok()) return status;
  }
  for (const Operand& input : call.inputs) {
    if (!input.present) return Invalid("an input is missing");
    if (!input.immediate && !BroadcastsTo(input, first)) return NeedBroadcastTo(input, first, "input");
  }
  return absl::OkStatus();
}

// Sets the inputs' broadcast shape. The caller applies the row's TypeRule and passes the result as `compute`.
absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  Operand shape;
  for (const Operand& input : call.inputs) {
    if (!input.is_tensor()) continue;
    if (shape.rank == 0) shape.rank = input.rank, shape.sizes = input.sizes;
    if (input.rank != shape.rank) return Invalid("the inputs have different ranks");
    for (int d = 0; d < shape.rank; ++d) {
      if (shape.sizes[d] == 1) shape.sizes[d] = input.sizes[d];
    }
  }
  for (const Operand& input : call.inputs) {
    if (input.is_tensor() && !BroadcastsTo(input, shape)) return NeedBroadcastTo(input, shape, "input");
  }
  shape.dtype = call.row->types == TypeRule::kBool ? DType::kBool : call.compute;
  for (Operand& out : outputs) SetOutputLike(out, shape);
  for (Operand& out : outputs.subspan(1)) out.dtype = DType::kBool;
  return absl::OkStatus();
}

Sample MakeSample(const Row& row, DType type) {
  Sample sample;
  for (int i = 0; i < row.outputs; ++i)
    sample.outputs.push_back({{2, 3}, row.types == TypeRule::kBool || i > 0 ? DType::kBool : type});
  const bool random = row.formula.find("rand") != std::string_view::npos;
  for (int i = 0; i < row.inputs; ++i) {
    if (random && i >= row.inputs - 3) {
      sample.inputs.push_back(
          {.sizes = {}, .dtype = DType::kFloat64, .immediate = true, .number = Number::Real(1)});
    } else {
      sample.inputs.push_back({{2, 3}, type});
    }
  }
  return sample;
}

}  // namespace

constinit const FamilyDescriptor kMapFamily = {.name = "map",
                                               .title = "elementwise, copy, random",
                                               .takes_immediates = true,
                                               .check = Check,
                                               .infer = Infer,
                                               .sample = MakeSample};

}  // namespace xpud::ops
