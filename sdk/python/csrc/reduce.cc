// Reductions: types, the result's shape, and the command.
#include <charconv>
#include <string>
#include <string_view>

#include "sdk/python/csrc/errors.h"
#include "sdk/python/csrc/op.h"

namespace xpud::python {
namespace {

using ops::TypeRule;

struct Types {
  DType compute, out;
};

Types TypesOf(const ops::Row& row, const ArrayView& in, std::optional<DType> asked) {
  switch (row.types) {
    case TypeRule::kSum: {
      const DType type = asked.value_or(KindOf(in.dtype) == Kind::kFloat ? in.dtype : DType::kInt64);
      return {type, type};
    }
    case TypeRule::kBool:
      return {in.dtype, DType::kBool};
    case TypeRule::kIndex:
      return {in.dtype, DType::kInt64};
    default:
      return {asked.value_or(in.dtype), asked.value_or(in.dtype)};
  }
}

// The parts of a formula: init, step, merge, finish.
std::string_view Part(std::string_view formula, int number) {
  while (number-- > 0) formula.remove_prefix(formula.find('|') + 1);
  formula = formula.substr(0, formula.find('|'));
  formula.remove_prefix(std::min(formula.find_first_not_of(' '), formula.size()));
  return formula.substr(0, formula.find_last_not_of(' ') + 1);
}

// Returns the result of a reduction of no elements: its initial state, if that is the result.
std::optional<int64_t> ValueOfNothing(const ops::Row& row) {
  const std::string_view init = Part(row.formula, 0), finish = Part(row.formula, 3);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(init.data(), init.data() + init.size(), value);
  const bool whole = error == std::errc() && end == init.data() + init.size();
  return whole && (finish == "p" || finish == "p != 0") ? std::optional(value) : std::nullopt;
}

bool FillWithNothing(const OpObject::Value& op, const ArrayView& out) {
  static const ops::Row& fill = ops::RowOf("fill.Scalar");
  const std::optional<int64_t> value = ValueOfNothing(*op.row);
  if (!value.has_value()) {
    PyErr_Format(PyExc_ValueError, "%U needs at least one element", op.name);
    return false;
  }
  const TensorRef out_ref = out.Ref();
  const TensorRef number = TensorRef::Immediate(*value);
  return Execute(out, {.row = &fill,
                       .compute = out.dtype,
                       .outputs = {&out_ref, 1},
                       .inputs = {&number, 1},
                       .attributes = {}});
}

bool Run(const OpObject::Value& op, const ArrayView& in, DType compute, const Shape& kept,
         const ArrayView& out, std::optional<double> attribute) {
  if (out.count == 0) return true;
  if (in.count == 0) return FillWithNothing(op, out);
  ArrayView shaped = out;
  shaped.SetDense(kept);
  const TensorRef out_ref = shaped.Ref(), in_ref = in.Ref();
  const ops::Number number = ops::Number::Real(attribute.value_or(0));
  return Execute(out, {.row = op.row,
                       .compute = compute,
                       .outputs = {&out_ref, 1},
                       .inputs = {&in_ref, 1},
                       .attributes = {&number, attribute.has_value() ? size_t{1} : size_t{0}}});
}

}  // namespace

PyObject* CallReduce(const OpObject::Value& op, const ArrayView& in, const Reduction& how) {
  if (op.row->outputs != 1) {
    PyErr_Format(PyExc_NotImplementedError, "%U has %d results, which this client does not return", op.name,
                 op.row->outputs);
    return nullptr;
  }
  const Types types = TypesOf(*op.row, in, how.dtype);
  const DType wrong = ops::Contains(op.row->dtypes, in.dtype) ? types.compute : in.dtype;
  if (!ops::Contains(op.row->dtypes, types.compute) ||
      (op.row->types != TypeRule::kSum && !how.dtype.has_value() &&
       !ops::Contains(op.row->dtypes, in.dtype))) {
    PyErr_Format(PyExc_TypeError, "%U does not take %s; astype, or dtype=, converts", op.name,
                 std::string(ops::Info(wrong).name).c_str());
    return nullptr;
  }
  Shape kept, shape;
  kept.rank = in.shape.rank;
  for (size_t d = 0; d < static_cast<size_t>(in.shape.rank); ++d) {
    const bool reduced = (how.dims >> d & 1) != 0;
    kept.sizes[d] = reduced ? 1 : in.shape.sizes[d];
    if (!reduced || how.keepdims) shape.sizes[static_cast<size_t>(shape.rank++)] = kept.sizes[d];
  }
  Ref out(NewArrayLike(in, types.out, shape));
  if (!out || !Run(op, in, types.compute, kept, ViewOf(out.get()), how.attribute)) return nullptr;
  return out.release();
}

}  // namespace xpud::python
