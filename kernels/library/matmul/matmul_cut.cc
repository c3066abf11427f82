#include "kernels/library/matmul/matmul_cut.h"

#include <algorithm>
#include <cmath>

namespace xpud::kernels::matmul {
namespace {

constexpr int64_t kUnit = 256;  // rows or columns: whole tiles of any kernel

double SecondsOf(const MatmulProblem& p, const MatmulRates& rates) {
  const double rate = ops::SizeOf(p.in) == 2 ? rates.half_operations : rates.float_operations;
  if (rate == 0) return 0;
  return static_cast<double>(p.batch) * static_cast<double>(p.m) * static_cast<double>(p.n) *
         static_cast<double>(p.k) / rate;
}

// An axis of the product: its size, the strides along it, and in what multiples it is cut.
struct Axis {
  int64_t MatmulProblem::* size;
  int64_t Strides::* stride;
  int64_t unit;
  bool of_a, of_b;  // which factors have it
};
constexpr Axis kBatch = {&MatmulProblem::batch, &Strides::batch, 1, true, true};
constexpr Axis kRows = {&MatmulProblem::m, &Strides::row, kUnit, true, false};
constexpr Axis kColumns = {&MatmulProblem::n, &Strides::column, kUnit, false, true};

Axis LargestOf(const MatmulProblem& p) {
  Axis largest = kBatch;
  for (const Axis& axis : {kRows, kColumns}) {
    if (p.*axis.size / axis.unit > p.*largest.size / largest.unit) largest = axis;
  }
  return largest;
}

}  // namespace

bool IsLong(const MatmulProblem& problem, const MatmulRates& rates) {
  return SecondsOf(problem, rates) > kLongSeconds;
}

std::vector<MatmulCall> Cut(const MatmulCall& call, const MatmulRates& rates) {
  const MatmulProblem& p = call.problem;
  const Axis axis = LargestOf(p);
  const int64_t size = p.*axis.size, stride = ops::SizeOf(p.in), out_stride = ops::SizeOf(p.out_type);
  const auto pieces = static_cast<int64_t>(std::ceil(SecondsOf(p, rates) / kPieceSeconds));
  const int64_t units = (size + axis.unit - 1) / axis.unit;
  const int64_t step = (units + pieces - 1) / pieces * axis.unit;
  std::vector<MatmulCall> cut;
  for (int64_t at = 0; at < size; at += step) {
    MatmulCall& piece = cut.emplace_back(call);
    piece.problem.*axis.size = std::min(step, size - at);
    MatmulOperands& o = piece.operands;
    if (axis.of_a) o.a += at * p.a.*axis.stride * stride;
    if (axis.of_b) o.b += at * p.b.*axis.stride * stride;
    if (o.c != nullptr) o.c += at * p.c.*axis.stride * out_stride;
    o.out += at * p.out.*axis.stride * out_stride;
  }
  return cut;
}

}  // namespace xpud::kernels::matmul
