// Cuts a product that would keep a device busy for long into several, so that others get their turn between
// them. The cut depends on the product and the kind of device only, so results do, too.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/library/matmul/matmul_problem.h"

namespace xpud::kernels::matmul {

// What a device multiplies and adds in a second, at most; 0: not known, and nothing is cut.
struct MatmulRates {
  double float_operations = 0;  // on float32, and for want of a better figure on float64
  double half_operations = 0;
};

// Whether it takes more than kLongSeconds at the peak rate.
bool IsLong(const MatmulProblem& problem, const MatmulRates& rates);
inline constexpr double kLongSeconds = 1e-3;

// Cuts a product that is long along its largest axis of batch, m and n, into pieces of about kPieceSeconds at
// the peak rate: in fact often 0.8 ms (shorter ones cost more). All but the last are alike.
std::vector<MatmulCall> Cut(const MatmulCall& call, const MatmulRates& rates);
inline constexpr double kPieceSeconds = 0.6e-3;

}  // namespace xpud::kernels::matmul
