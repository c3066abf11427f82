#include "proto/ops/families/scan.h"

#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status CheckOut(const Operand& out, const Operand& self, DType type) {
  RETURN_IF_ERROR(NeedSameSizes(out, self, "output"));
  return NeedSameType(out, "output", type);
}

DType TypeOfOut(const Call& call, const Operand& self) {
  return call.row->types == TypeRule::kSum ? call.compute : self.dtype;
}

absl::Status Check(const Call& call) {
  const auto scan = Read<ScanCall>(call);
  RETURN_IF_ERROR(CheckOut(*scan.out, *scan.self, TypeOfOut(call, *scan.self)));
  return DimensionOf(scan.dim, *scan.self).status();
}

absl::Status CheckIndexed(const Call& call) {
  const auto scan = Read<IndexedScanCall>(call);
  RETURN_IF_ERROR(CheckOut(*scan.values, *scan.self, scan.self->dtype));
  RETURN_IF_ERROR(CheckOut(*scan.indices, *scan.self, DType::kInt64));
  return DimensionOf(scan.dim, *scan.self).status();
}

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const auto scan = Read<ScanCall>(call);
  Operand& out = *Outputs<ScanCall>(outputs).out;
  SetOutputLike(out, *scan.self);
  out.dtype = TypeOfOut(call, *scan.self);
  return absl::OkStatus();
}

absl::Status InferIndexed(const Call& call, std::span<Operand> outputs) {
  const auto scan = Read<IndexedScanCall>(call);
  const auto to = Outputs<IndexedScanCall>(outputs);
  SetOutputLike(*to.values, *scan.self);
  SetOutputLike(*to.indices, *scan.self);
  to.indices->dtype = DType::kInt64;
  return absl::OkStatus();
}

Sample MakeSample(const Row&, DType type) {
  const Sample::Tensor tensor = {{2, 3}, type};
  return SampleOf(ScanCall<Sample::Tensor>{.out = tensor, .self = tensor, .dim = 1});
}

Sample MakeIndexedSample(const Row&, DType type) {
  const Sample::Tensor tensor = {{2, 3}, type};
  return SampleOf(IndexedScanCall<Sample::Tensor>{
      .values = tensor, .indices = {{2, 3}, DType::kInt64}, .self = tensor, .dim = 1});
}

}  // namespace

constinit const FamilyDescriptor kScanFamily = Described<ScanCall>(
    {.name = "scan", .title = "scans", .check = Check, .infer = Infer, .sample = MakeSample});
constinit const FamilyDescriptor kIndexedScanFamily =
    Described<IndexedScanCall>({.name = "indexed_scan",
                                .title = "scans with positions",
                                .check = CheckIndexed,
                                .infer = InferIndexed,
                                .sample = MakeIndexedSample});

}  // namespace xpud::ops
