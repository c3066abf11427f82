#include "sdk/torch/csrc/table/boxed_reduce.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/scalar_tensor.h>

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sdk/torch/csrc/call/operand.h"
#include "sdk/torch/csrc/engines/reduce.h"
#include "sdk/torch/csrc/fallback/fallback.h"
#include "sdk/torch/csrc/runtime/storage.h"

namespace xpud::shim {
namespace {

using ops::TypeRule;

// The arguments of a reduction.
struct Request {
  at::Tensor self;
  std::vector<int64_t> dims;  // all, if empty
  bool keepdim = false;
  std::optional<at::ScalarType> type;
  std::vector<ops::Number> attributes;
  std::optional<double> correction;  // of std and var
  double order = 2;                  // of a norm
};

void SetDims(const c10::IValue& value, Request& request) {
  if (value.isInt()) request.dims = {value.toInt()};
  if (value.isIntList()) request.dims = value.toIntVector();
  const int64_t rank = std::max<int64_t>(request.self.dim(), 1);
  for (int64_t& dim : request.dims) dim = at::maybe_wrap_dim(dim, rank);
  for (size_t i = 0; i < request.dims.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      TORCH_CHECK(request.dims[i] != request.dims[k], "dim ", request.dims[i],
                  " appears multiple times in the list of dims");
    }
  }
}

Request Parse(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> values) {
  Request request;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    const c10::IValue& value = values[i];
    if (name == "self")
      request.self = value.toTensor();
    else if (name == "dim")
      SetDims(value, request);
    else if (name == "keepdim")
      request.keepdim = value.toBool();
    else if (name == "dtype" && !value.isNone())
      request.type = value.toScalarType();
    else if (name == "ord")
      request.order = value.toScalar().toDouble();
    else if (name == "correction") {
      request.correction = value.isNone() ? 1.0 : value.toScalar().toDouble();
      request.attributes = {ops::Number::Real(*request.correction)};
    }
  }
  return request;
}

struct Types {
  at::ScalarType compute;
  at::ScalarType out;
};

Types TypesOf(TypeRule rule, const Request& request) {
  const at::ScalarType self = request.self.scalar_type();
  switch (rule) {
    case TypeRule::kSum: {
      const at::ScalarType type = request.type.value_or(c10::isIntegralType(self, true) ? at::kLong : self);
      return {type, type};
    }
    case TypeRule::kBool:
      return {self, self == at::kByte ? at::kByte : at::kBool};
    case TypeRule::kIndex:
      return {self, at::kLong};
    default:
      return {request.type.value_or(self), request.type.value_or(self)};
  }
}

// The row of a norm of order `order`, and its attribute.
const ops::Row& NormRow(Request& request) {
  static const ops::Row &zero = ops::RowOf("xpud::norm_0"), &one = ops::RowOf("xpud::norm_1"),
                        &two = ops::RowOf("linalg_vector_norm"), &most = ops::RowOf("xpud::norm_inf"),
                        &least = ops::RowOf("xpud::norm_neg_inf"), &any = ops::RowOf("xpud::norm_p");
  if (request.order == 0) return zero;
  if (request.order == 1) return one;
  if (request.order == 2) return two;
  if (std::isinf(request.order)) return request.order > 0 ? most : least;
  request.attributes = {ops::Number::Real(request.order)};
  return any;
}

// The result for an element to which nothing is reduced, or nullopt if PyTorch refuses or warns.
std::optional<double> ResultOfNothing(const ops::Row& row, const Request& request) {
  static const std::map<std::string_view, double> kResults = {{"sum.dim_IntList|sum", 0},
                                                              {"mean.dim|mean", NAN},
                                                              {"prod|prod.dim_int", 1},
                                                              {"any|any.dim", 0},
                                                              {"all|all.dim", 1}};
  const auto found = kResults.find(row.aten);
  if (found != kResults.end()) return found->second;
  const bool norm = row.aten == ops::RowOf("linalg_vector_norm").aten || row.aten.starts_with("xpud::norm_");
  if (norm && request.order >= 0 && std::isfinite(request.order)) return 0.0;
  return std::nullopt;
}

// Reduces a tensor without elements.
std::optional<at::Tensor> ReduceNothing(const ops::Row& row, const Request& request,
                                        at::ScalarType out_type) {
  const at::Tensor& self = request.self;
  const auto reduced = at::native::make_dim_mask(c10::IntArrayRef(request.dims), self.dim());
  bool nothing = false;
  for (int64_t d = 0; d < self.dim(); ++d) nothing |= reduced[static_cast<size_t>(d)] && self.size(d) == 0;
  const std::optional<double> result = nothing ? ResultOfNothing(row, request) : 0.0;
  if (!result) return std::nullopt;
  at::Tensor out =
      MakeEmpty(at::meta::get_reduction_shape(self, request.dims, request.keepdim), out_type, self.device());
  return out.fill_(*result);
}

}  // namespace

void BoxedReduce::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  Request request = Parse(op.schema(), torch::jit::last(*stack, count));
  const at::Tensor& self = request.self;
  const Types types = TypesOf(row_.types, request);
  const ops::Row& row = request.order == 2 ? row_ : NormRow(request);
  const bool supported = IsOnDevice(self) && self.dim() <= ops::kMaxRank && IsSupported(self.scalar_type()) &&
                         IsSupported(types.compute, row_.dtypes) &&
                         (row_.types == TypeRule::kSum || IsSupported(self.scalar_type(), row_.dtypes));
  std::optional<at::Tensor> out;
  if (supported && self.numel() == 0) {
    out = ReduceNothing(row, request, types.out);
  } else if (supported) {
    out = LaunchReduce(row, self, request.dims, request.keepdim, *ToDType(types.compute), types.out,
                       request.attributes);
  }
  if (!out) return Fallback(op, stack);
  if (request.correction) WarnAboutFreedom("var", self, *out, *request.correction);
  torch::jit::drop(*stack, count);
  stack->emplace_back(*std::move(out));
}

}  // namespace xpud::shim
