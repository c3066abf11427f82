#include "proto/ops/families/matmul.h"

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/ops/rules.h"

namespace xpud::ops {
namespace {

absl::Status CheckRanks(const MatmulCall<Given>& product) {
  const int rank = product.a->rank;
  if (rank != 2 && rank != 3)
    return absl::InvalidArgumentError(absl::StrCat("a matrix of rank ", rank, ", 2 or 3 is needed"));
  return NeedRank(*product.b, "second matrix", rank);
}

absl::Status Check(const Call& call) {
  const auto product = Read<MatmulCall>(call);
  const Operand &out = *product.out, &a = *product.a, &b = *product.b, &c = *product.c;
  RETURN_IF_ERROR(CheckRanks(product));
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

absl::Status Infer(const Call& call, std::span<Operand> outputs) {
  const auto product = Read<MatmulCall>(call);
  RETURN_IF_ERROR(CheckRanks(product));
  Operand& out = *Outputs<MatmulCall>(outputs).out;
  SetOutputLike(out, *product.a);
  out.sizes[out.rank - 1] = product.b->sizes[out.rank - 1];
  return absl::OkStatus();
}

double Products(const Call& call) {
  const auto product = Read<MatmulCall>(call);
  const Operand& a = *product.a;
  return static_cast<double>(product.out->numel()) * static_cast<double>(a.sizes[a.rank - 1]);
}

Sample MakeSample(const Row&, DType type) {
  return SampleOf(MatmulCall<Sample::Tensor>{.out = {{2, 2}, type},
                                             .a = {{2, 3}, type},
                                             .b = {{3, 2}, type},
                                             .c = {{2, 2}, type},
                                             .beta = 1,
                                             .alpha = 1});
}

}  // namespace

constinit const FamilyDescriptor kMatmulFamily = Described<MatmulCall>({.name = "matmul",
                                                                        .title = "matrix product",
                                                                        .check = Check,
                                                                        .infer = Infer,
                                                                        .cost = Products,
                                                                        .sample = MakeSample});

}  // namespace xpud::ops
