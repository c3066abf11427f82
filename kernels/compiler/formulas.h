// The formula language of the op table (proto/ops/formula/), whose names kernels use throughout.
#pragma once

#include "proto/ops/formula/expression.h"
#include "proto/ops/formula/formula.h"

namespace xpud::kernels {

using formula::Expression;
using formula::FunctionNamed;
using formula::IsSpecial;
using formula::kNumVariables;
using formula::MapFormula;
using formula::NameOf;
using formula::Node;
using formula::NodeId;
using formula::Op;
using formula::ParseMap;
using formula::ParseReduce;
using formula::ReduceFormula;
using formula::Variable;

}  // namespace xpud::kernels
