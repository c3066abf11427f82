// Elementwise ops: types, broadcasting, and the command.
#include <algorithm>
#include <array>
#include <string>

#include "sdk/python/csrc/errors.h"
#include "sdk/python/csrc/op.h"

namespace xpud::python {
namespace {

using ops::TypeRule;

struct Operand {
  const ArrayView* view = nullptr;  // null: a number
  PythonNumber number{Kind::kBool, {}};
};

struct Operands {
  std::array<Operand, ops::kMaxInputs> all;
  size_t count = 0;
  const ArrayView* first = nullptr;  // array
  std::span<Operand> span() { return {all.data(), count}; }
  std::span<const Operand> span() const { return {all.data(), count}; }
};

bool IsOnDeviceOf(const ArrayView& a, const ArrayView& b) {
  return a.storage->session == b.storage->session && a.storage->device == b.storage->device;
}

enum class Reading { kRead, kStranger, kFailed };

Reading Read(std::span<PyObject* const> inputs, Operands& operands) {
  for (PyObject* input : inputs) {
    Operand& operand = operands.all[operands.count++];
    if (IsArray(input)) {
      operand.view = &ViewOf(input);
      if (operands.first == nullptr) operands.first = operand.view;
      if (!IsOnDeviceOf(*operand.view, *operands.first)) {
        PyErr_SetString(PyExc_ValueError, "the arrays are on different devices, or in different sessions");
        return Reading::kFailed;
      }
    } else if (const auto number = NumberFrom(input)) {
      operand.number = *number;
    } else {
      return PyErr_Occurred() != nullptr ? Reading::kFailed : Reading::kStranger;
    }
  }
  return Reading::kRead;
}

struct Types {
  DType compute, out;
};

DType PromoteAll(const Operands& operands) {
  std::optional<DType> type;
  Kind highest = Kind::kBool;
  for (const Operand& operand : operands.span()) {
    if (operand.view == nullptr)
      highest = std::max(highest, operand.number.kind);
    else
      type = type.has_value() ? Promote(*type, operand.view->dtype) : operand.view->dtype;
  }
  return type.has_value() ? Promote(*type, highest) : DefaultOf(highest);
}

// A comparison with a number beyond the range of the array's type uses int64.
DType WidenFor(const Operands& operands, DType type) {
  if (KindOf(type) != Kind::kInteger) return type;
  for (const Operand& operand : operands.span()) {
    if (operand.view == nullptr && operand.number.kind == Kind::kInteger &&
        !Holds(type, operand.number.value.integer))
      return DType::kInt64;
  }
  return type;
}

Types TypesOf(const ops::Row& row, const Operands& operands, const ArrayView* out) {
  switch (row.types) {
    case TypeRule::kFloat: {
      const DType type = Promote(PromoteAll(operands), Kind::kFloat);
      return {type, type};
    }
    case TypeRule::kBool:
      return {WidenFor(operands, PromoteAll(operands)), DType::kBool};
    case TypeRule::kSame:
      return {operands.first->dtype, operands.first->dtype};
    case TypeRule::kAny:
      return {operands.first != nullptr ? operands.first->dtype : out->dtype, out->dtype};
    default: {
      const DType type = PromoteAll(operands);
      return {type, type};
    }
  }
}

std::string TypesText(ops::DTypeSet set) {
  std::string text;
  for (int i = 0; i < ops::kNumDTypes; ++i) {
    if (!ops::Contains(set, static_cast<DType>(i))) continue;
    text += (text.empty() ? "" : ", ") + std::string(ops::Info(static_cast<DType>(i)).name);
  }
  return text;
}

bool CheckTypes(const OpObject::Value& op, const Operands& operands, const Types& types) {
  if (!ops::Contains(op.row->dtypes, types.compute) && op.row->types != TypeRule::kAny) {
    PyErr_Format(PyExc_TypeError, "%U does not take %s, only %s; astype converts", op.name,
                 std::string(ops::Info(types.compute).name).c_str(), TypesText(op.row->dtypes).c_str());
    return false;
  }
  for (const Operand& operand : operands.span()) {
    if (operand.view != nullptr || KindOf(types.compute) != Kind::kInteger ||
        operand.number.kind != Kind::kInteger)
      continue;
    if (!Holds(types.compute, operand.number.value.integer)) {
      PyErr_Format(PyExc_OverflowError, "%lld is out of range for %s",
                   static_cast<long long>(operand.number.value.integer),
                   std::string(ops::Info(types.compute).name).c_str());
      return false;
    }
  }
  return true;
}

bool BroadcastShapes(const Operands& operands, Shape& shape) {
  for (const Operand& operand : operands.span()) {
    if (operand.view == nullptr) continue;
    const Shape& own = operand.view->shape;
    if (own.rank > shape.rank) {
      std::move_backward(shape.sizes.begin(), shape.sizes.begin() + shape.rank,
                         shape.sizes.begin() + own.rank);
      std::fill_n(shape.sizes.begin(), own.rank - shape.rank, 1);
      shape.rank = own.rank;
    }
    for (int i = 1; i <= own.rank; ++i) {
      int64_t& size = shape.sizes[static_cast<size_t>(shape.rank - i)];
      const int64_t other = own.sizes[static_cast<size_t>(own.rank - i)];
      if (size != other && size != 1 && other != 1) {
        const Ref a(TupleOf(operands.first->shape.span())), b(TupleOf(own.span()));
        PyErr_Format(PyExc_ValueError, "shapes %R and %R do not broadcast", a.get(), b.get());
        return false;
      }
      size = size == 1 ? other : size;
    }
  }
  return true;
}

// Returns the view's strides when it is broadcast to `shape`.
std::array<int64_t, ops::kMaxRank> ExpandedStrides(const ArrayView& view, const Shape& shape) {
  std::array<int64_t, ops::kMaxRank> strides{};
  for (int i = 1; i <= view.shape.rank; ++i) {
    const auto own = static_cast<size_t>(view.shape.rank - i);
    strides[static_cast<size_t>(shape.rank - i)] = view.shape.sizes[own] == 1 ? 0 : view.strides[own];
  }
  return strides;
}

bool Send(const ops::Row& row, DType compute, const ArrayView& out, const Operands& operands) {
  const bool flat =
      out.dense && std::all_of(operands.span().begin(), operands.span().end(), [&](const Operand& operand) {
        return operand.view == nullptr || (operand.view->dense && operand.view->shape == out.shape);
      });
  const TensorRef out_ref = flat ? out.FlatRef() : out.Ref();
  std::array<TensorRef, ops::kMaxInputs> refs;
  std::array<std::array<int64_t, ops::kMaxRank>, ops::kMaxInputs> strides;
  for (size_t i = 0; i < operands.count; ++i) {
    const Operand& operand = operands.all[i];
    if (operand.view == nullptr) {
      refs[i] = TensorRef::FromNumber(operand.number.value, DefaultOf(operand.number.kind) == DType::kFloat32
                                                                ? DType::kFloat64
                                                                : DefaultOf(operand.number.kind));
    } else if (flat) {
      refs[i] = operand.view->FlatRef();
    } else {
      strides[i] = ExpandedStrides(*operand.view, out.shape);
      refs[i] = operand.view->RefAs(out.shape, strides[i]);
    }
  }
  return Execute(out, {.row = &row,
                       .compute = compute,
                       .outputs = {&out_ref, 1},
                       .inputs = {refs.data(), operands.count},
                       .attributes = {}});
}

bool BroadcastsTo(const Shape& shape, const Shape& target) {
  if (shape.rank > target.rank) return false;
  for (int i = 1; i <= shape.rank; ++i) {
    const int64_t size = shape.sizes[static_cast<size_t>(shape.rank - i)];
    if (size != 1 && size != target.sizes[static_cast<size_t>(target.rank - i)]) return false;
  }
  return true;
}

// Checks that `out` can take a result of the shape and kind: it is converted within a kind, or to a higher
// one.
bool CheckOut(const ArrayView& out, const Operands& operands, const Shape& shape, Kind kind) {
  if (operands.first != nullptr && !IsOnDeviceOf(out, *operands.first)) {
    PyErr_SetString(PyExc_ValueError, "out is on another device, or in another session");
    return false;
  }
  if (!BroadcastsTo(shape, out.shape)) {
    const Ref result(TupleOf(shape.span())), given(TupleOf(out.shape.span()));
    PyErr_Format(PyExc_ValueError, "a result of shape %R does not fit out, of shape %R", result.get(),
                 given.get());
    return false;
  }
  for (size_t d = 0; d < static_cast<size_t>(out.shape.rank); ++d) {
    if (out.strides[d] != 0 || out.shape.sizes[d] <= 1) continue;
    PyErr_SetString(PyExc_ValueError, "out is a broadcast view, in which several elements share memory");
    return false;
  }
  if (kind <= KindOf(out.dtype)) return true;
  PyErr_Format(PyExc_TypeError, "a %s result cannot be stored in out, of %s; convert it with astype",
               kind == Kind::kFloat ? "floating" : "integer", std::string(ops::Info(out.dtype).name).c_str());
  return false;
}

// Computes into new memory, then copies, because `out` shares memory with an input.
PyObject* ThroughCopy(const ops::Row& row, const Types& types, PyObject* out, const Operands& operands) {
  static const ops::Row& copy = ops::RowOf("_copy_from");
  const Ref result(NewArrayLike(ViewOf(out), types.out, ViewOf(out).shape));
  if (!result || !Send(row, types.compute, ViewOf(result.get()), operands)) return nullptr;
  Operands copied;
  copied.all[copied.count++].view = &ViewOf(result.get());
  return Send(copy, types.out, ViewOf(out), copied) ? NewRef(out) : nullptr;
}

PyObject* RunInto(const ops::Row& row, const Types& types, PyObject* out, const Operands& operands) {
  const ArrayView& target = ViewOf(out);
  if (target.count == 0) return NewRef(out);
  for (const Operand& operand : operands.span()) {
    if (operand.view != nullptr && Overlap(target, *operand.view))
      return ThroughCopy(row, types, out, operands);
  }
  return Send(row, types.compute, target, operands) ? NewRef(out) : nullptr;
}

}  // namespace

PyObject* CallMap(const OpObject::Value& op, std::span<PyObject* const> inputs, PyObject* out,
                  std::optional<DType> compute, bool strangers_refuse) {
  Operands operands;
  switch (Read(inputs, operands)) {
    case Reading::kFailed:
      return nullptr;
    case Reading::kStranger:
      // NumPy's arrays would not raise a helpful error.
      if (!strangers_refuse && PyObject_HasAttrString(inputs[operands.count - 1], "__array_interface__") == 0)
        Py_RETURN_NOTIMPLEMENTED;
      CheckArray(inputs[operands.count - 1]);
      return nullptr;
    case Reading::kRead:
      break;
  }
  const ArrayView* target = out == nullptr ? nullptr : CheckArray(out);
  if (out != nullptr && target == nullptr) return nullptr;
  if (operands.first == nullptr && target == nullptr) {
    PyErr_Format(PyExc_TypeError, "%U of numbers needs out=, or at least one array", op.name);
    return nullptr;
  }
  if (op.row->outputs != 1 || (op.row->types == TypeRule::kAny && target == nullptr) ||
      (op.row->types == TypeRule::kSame && operands.first == nullptr)) {
    PyErr_Format(PyExc_TypeError, "%U does not determine its result's type: it needs out=", op.name);
    return nullptr;
  }
  Types types = TypesOf(*op.row, operands, target);
  types.compute = compute.value_or(types.compute);
  Shape shape;
  if (!CheckTypes(op, operands, types) || !BroadcastShapes(operands, shape)) return nullptr;
  if (target != nullptr) {
    const Kind kind = op.row->types == TypeRule::kAny ? Kind::kBool : KindOf(types.out);
    return CheckOut(*target, operands, shape, kind) ? RunInto(*op.row, types, out, operands) : nullptr;
  }
  Ref made(NewArrayLike(*operands.first, types.out, shape));
  if (!made) return nullptr;
  if (ViewOf(made.get()).count > 0 && !Send(*op.row, types.compute, ViewOf(made.get()), operands))
    return nullptr;
  return made.release();
}

}  // namespace xpud::python
