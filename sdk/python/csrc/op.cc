#include "sdk/python/csrc/op.h"

#include <algorithm>
#include <array>

#include "sdk/python/csrc/errors.h"

namespace xpud::python {
namespace {

using ops::Family;

PyTypeObject* op_type = nullptr;

bool IsCallable(const ops::Row& row) { return row.family == Family::kMap || row.family == Family::kReduce; }

// A NumPy scalar, or an array of it without dimensions, as Python's number.
Ref ItemOf(PyObject* object) {
  const Ref dimensions(PyObject_GetAttrString(object, "ndim"));
  if (dimensions && PyLong_Check(dimensions.get()) && PyLong_AsLong(dimensions.get()) == 0) {
    Ref item(PyObject_CallMethod(object, "item", nullptr));
    if (item) return item;
  }
  PyErr_Clear();
  return {};
}

}  // namespace

std::optional<PythonNumber> NumberFrom(PyObject* object) {
  if (PyFloat_Check(object)) return PythonNumber{Kind::kFloat, ops::Number::Real(PyFloat_AsDouble(object))};
  if (PyBool_Check(object)) return PythonNumber{Kind::kBool, ops::Number::Integer(object == Py_True ? 1 : 0)};
  if (PyLong_Check(object)) {
    const long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred() != nullptr) return std::nullopt;
    return PythonNumber{Kind::kInteger, ops::Number::Integer(value)};
  }
  const Ref item = ItemOf(object);
  return item && (PyFloat_Check(item.get()) || PyLong_Check(item.get())) ? NumberFrom(item.get())
                                                                         : std::nullopt;
}

bool Execute(const ArrayView& on, const OpCall& call) {
  const Queue* found = QueueOf(*on.storage->session, on.storage->device);
  if (found == nullptr) return false;
  const Queue queue = *found;
  absl::Status status;
  {
    const Unlocked unlocked;
    status = queue.Execute(call);
  }
  if (status.ok()) return true;
  SetError(status);
  return false;
}

namespace {

// ---- calls

struct MapCall {
  std::array<PyObject*, ops::kMaxInputs> inputs{};
  size_t count = 0;
  PyObject* out = nullptr;
  std::optional<DType> compute;
};

bool ReadKeyword(const OpObject::Value& op, PyObject* key, PyObject* value, MapCall& call) {
  if (PyUnicode_CompareWithASCIIString(key, "out") == 0) {
    call.out = value == Py_None ? nullptr : value;
    return true;
  }
  if (PyUnicode_CompareWithASCIIString(key, "compute") == 0) {
    if (value == Py_None) return true;
    call.compute = TypeFrom(value);
    return call.compute.has_value();
  }
  PyErr_Format(PyExc_TypeError, "%U() got an unexpected keyword argument '%U'", op.name, key);
  return false;
}

bool ReadInputs(const OpObject::Value& op, PyObject* args, MapCall& call) {
  const Py_ssize_t given = PyTuple_Size(args), wanted = op.row->inputs, defaults = PyTuple_Size(op.defaults);
  if (given > wanted || given < wanted - defaults) {
    PyErr_Format(PyExc_TypeError, "%U() takes %zd to %zd positional arguments, %zd were given", op.name,
                 wanted - defaults, wanted, given);
    return false;
  }
  call.count = static_cast<size_t>(wanted);
  for (Py_ssize_t i = 0; i < wanted; ++i) {
    call.inputs[static_cast<size_t>(i)] =
        i < given ? PyTuple_GetItem(args, i) : PyTuple_GetItem(op.defaults, defaults - (wanted - i));
  }
  return true;
}

PyObject* CallAsMap(const OpObject::Value& op, PyObject* args, PyObject* keywords) {
  MapCall call;
  if (!ReadInputs(op, args, call)) return nullptr;
  PyObject *key = nullptr, *value = nullptr;
  for (Py_ssize_t at = 0; keywords != nullptr && PyDict_Next(keywords, &at, &key, &value) != 0;) {
    if (!ReadKeyword(op, key, value, call)) return nullptr;
  }
  return CallMap(op, {call.inputs.data(), call.count}, call.out, call.compute, /*strangers_refuse=*/true);
}

bool AddDim(PyObject* number, int rank, unsigned& dims) {
  const long axis = PyLong_AsLong(number);
  if (axis == -1 && PyErr_Occurred() != nullptr) return false;
  const long dim = axis < 0 ? axis + rank : axis;
  if (dim < 0 || dim >= rank) {
    PyErr_Format(PyExc_IndexError, "axis %ld of an array with %d dimensions", axis, rank);
    return false;
  }
  if ((dims >> dim & 1) != 0) {
    PyErr_Format(PyExc_ValueError, "axis %ld is named twice", axis);
    return false;
  }
  dims |= 1U << dim;
  return true;
}

// None: all dimensions; an integer; a tuple of them.
bool ReadAxis(PyObject* axis, int rank, unsigned& dims) {
  if (axis == Py_None) {
    dims = (1U << rank) - 1;
    return true;
  }
  if (!PyTuple_Check(axis)) return AddDim(axis, rank, dims);
  for (Py_ssize_t i = 0; i < PyTuple_Size(axis); ++i) {
    if (!AddDim(PyTuple_GetItem(axis, i), rank, dims)) return false;
  }
  return true;
}

PyObject* CallAsReduction(const OpObject::Value& op, PyObject* args, PyObject* keywords) {
  PyObject *in = nullptr, *axis = Py_None, *dtype = Py_None, *attribute = Py_None;
  int keepdims = 0;
  static const char* names[] = {"", "axis", "keepdims", "dtype", "attribute", nullptr};
  if (PyArg_ParseTupleAndKeywords(args, keywords, "O|O$pOO", const_cast<char**>(names), &in, &axis, &keepdims,
                                  &dtype, &attribute) == 0) {
    return nullptr;
  }
  const ArrayView* view = CheckArray(in);
  Reduction how;
  how.keepdims = keepdims != 0;
  if (view == nullptr || !ReadAxis(axis, view->shape.rank, how.dims)) return nullptr;
  if (dtype != Py_None && !(how.dtype = TypeFrom(dtype)).has_value()) return nullptr;
  if (attribute != Py_None) how.attribute = PyFloat_AsDouble(attribute);
  return PyErr_Occurred() != nullptr ? nullptr : CallReduce(op, *view, how);
}

PyObject* CallOp(PyObject* self, PyObject* args, PyObject* keywords) {
  const OpObject::Value& op = reinterpret_cast<OpObject*>(self)->value;
  return op.row->family == Family::kMap ? CallAsMap(op, args, keywords) : CallAsReduction(op, args, keywords);
}

// ---- the type

// _describe(doc, defaults): what the table does not say.
PyObject* Describe(PyObject* self, PyObject* args) {
  PyObject *doc = nullptr, *defaults = nullptr;
  if (PyArg_ParseTuple(args, "OO", &doc, &defaults) == 0) return nullptr;
  OpObject::Value& op = reinterpret_cast<OpObject*>(self)->value;
  if (!PyTuple_Check(defaults) || PyTuple_Size(defaults) > op.row->inputs) {
    PyErr_Format(PyExc_TypeError, "%U has no such defaults: %R", op.name, defaults);
    return nullptr;
  }
  Ref(std::exchange(op.doc, NewRef(doc)));
  Ref(std::exchange(op.defaults, NewRef(defaults)));
  Py_RETURN_NONE;
}

PyObject* OpName(PyObject* self, void* /*closure*/) {
  return NewRef(reinterpret_cast<OpObject*>(self)->value.name);
}
PyObject* OpDoc(PyObject* self, void* /*closure*/) {
  return NewRef(reinterpret_cast<OpObject*>(self)->value.doc);
}
PyObject* OpText(PyObject* self) {
  return PyUnicode_FromFormat("<xpud op '%U'>", reinterpret_cast<OpObject*>(self)->value.name);
}

PyMethodDef methods[] = {{"_describe", Describe, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {
    {"__name__", OpName, nullptr, nullptr, nullptr},
    {"__doc__", OpDoc, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Destroy<OpObject>)},
    {Py_tp_call, reinterpret_cast<void*>(CallOp)},
    {Py_tp_repr, reinterpret_cast<void*>(OpText)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr},
};
PyType_Spec spec = {"xpud._xpud.Op", sizeof(OpObject), 0, Py_TPFLAGS_DEFAULT, slots};

PyObject* MakeOp(const ops::Row& row) {
  auto* op = Create<OpObject>(op_type);
  if (op == nullptr) return nullptr;
  op->value.row = &row;
  op->value.name = PyUnicode_FromString(NamesOf(row).front().c_str());
  op->value.defaults = PyTuple_New(0);
  op->value.doc = PyUnicode_FromString("");
  return reinterpret_cast<PyObject*>(op);
}

// ---- the table

constexpr std::array kFamilies = {"map",      "reduce",    "softmax",     "layer_norm", "layer_norm_backward",
                                  "gather",   "embedding", "scatter_add", "matmul",     "attention",
                                  "nll_loss", "test"};
static_assert(kFamilies.size() == static_cast<size_t>(Family::kTest) + 1);

PyObject* TypesTuple(ops::DTypeSet set) {
  Ref list(PyList_New(0));
  for (int i = 0; list && i < ops::kNumDTypes; ++i) {
    if (ops::Contains(set, static_cast<DType>(i)))
      PyList_Append(list.get(), TypeObject(static_cast<DType>(i)));
  }
  return list ? PyList_AsTuple(list.get()) : nullptr;
}

PyObject* NamesTuple(const ops::Row& row) {
  const std::vector<std::string> names = NamesOf(row);
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(names.size()));
  for (size_t i = 0; tuple != nullptr && i < names.size(); ++i) {
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), PyUnicode_FromString(names[i].c_str()));
  }
  return tuple;
}

PyObject* DescribeRow(const ops::Row& row, PyObject* op) {
  const std::string formula(row.formula), aten(row.aten);
  constexpr std::array kRules = {"promote", "float", "bool", "same", "any", "sum", "index", "value_index"};
  return Py_BuildValue(
      "{s:i,s:s,s:N,s:s,s:i,s:i,s:s,s:s,s:N,s:i,s:N}", "number", row.number, "aten", aten.c_str(), "names",
      NamesTuple(row), "family", kFamilies[static_cast<size_t>(row.family)], "inputs", row.inputs, "optional",
      row.optional, "formula", formula.c_str(), "types", kRules[static_cast<size_t>(row.types)], "dtypes",
      TypesTuple(row.dtypes), "outputs", row.outputs, "op", op);
}

}  // namespace

std::vector<std::string> NamesOf(const ops::Row& row) {
  std::vector<std::string> names;
  for (std::string_view rest = row.aten; !rest.empty();) {
    const size_t end = std::min(rest.find('|'), rest.size());
    std::string_view name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (name.starts_with("xpud::")) name.remove_prefix(6);
    std::string base(name.substr(0, name.find('.')));
    if (std::find(names.begin(), names.end(), base) == names.end()) names.push_back(std::move(base));
  }
  return names;
}

// ---- any row

namespace {

// A tuple's arrays and numbers as operands; None is an absent one.
bool ReadRefs(PyObject* tuple, std::span<TensorRef> refs, size_t& count, const ArrayView*& first) {
  count = static_cast<size_t>(PyTuple_Size(tuple));
  if (count > refs.size()) {
    PyErr_Format(PyExc_ValueError, "%zu operands; at most %zu are allowed", count, refs.size());
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    PyObject* operand = PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i));
    if (operand == Py_None) continue;
    if (!IsArray(operand)) {
      const auto number = NumberFrom(operand);
      if (!number.has_value()) {
        if (PyErr_Occurred() == nullptr) CheckArray(operand);
        return false;
      }
      refs[i] = TensorRef::FromNumber(
          number->value, number->kind == Kind::kFloat ? DType::kFloat64 : DefaultOf(number->kind));
      continue;
    }
    const ArrayView& view = ViewOf(operand);
    if (first == nullptr) first = &view;
    if (view.storage->session != first->storage->session || view.storage->device != first->storage->device) {
      PyErr_SetString(PyExc_ValueError, "the arrays lie on different devices, or in different sessions");
      return false;
    }
    refs[i] = view.Ref();
  }
  return true;
}

bool ReadNumbers(PyObject* tuple, std::span<ops::Number> numbers, size_t& count) {
  count = static_cast<size_t>(PyTuple_Size(tuple));
  if (count > numbers.size()) {
    PyErr_Format(PyExc_ValueError, "%zu attributes; at most %zu are allowed", count, numbers.size());
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    const auto number = NumberFrom(PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i)));
    if (!number.has_value()) {
      if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "an attribute is a number");
      return false;
    }
    numbers[i] = number->value;
  }
  return true;
}

}  // namespace

PyObject* ExecuteRow(PyObject* /*module*/, PyObject* args) {
  int number = 0;
  PyObject *outputs = nullptr, *inputs = nullptr, *attributes = nullptr, *compute = Py_None;
  if (PyArg_ParseTuple(args, "iO!O!O!|O", &number, &PyTuple_Type, &outputs, &PyTuple_Type, &inputs,
                       &PyTuple_Type, &attributes, &compute) == 0) {
    return nullptr;
  }
  const ops::Row* row = ops::FindRow(static_cast<uint16_t>(number));
  if (row == nullptr) return PyErr_Format(PyExc_ValueError, "the op table has no row %d", number);
  std::array<TensorRef, ops::kMaxOutputs> out_refs;
  std::array<TensorRef, ops::kMaxInputs> in_refs;
  std::array<ops::Number, ops::kMaxAttributes> numbers;
  size_t outs = 0, ins = 0, attribute_count = 0;
  const ArrayView* first = nullptr;
  if (!ReadRefs(outputs, out_refs, outs, first) || !ReadRefs(inputs, in_refs, ins, first) ||
      !ReadNumbers(attributes, numbers, attribute_count)) {
    return nullptr;
  }
  if (first == nullptr) return PyErr_Format(PyExc_ValueError, "a command without arrays");
  std::optional<DType> type = first->dtype;
  if (compute != Py_None && !(type = TypeFrom(compute)).has_value()) return nullptr;
  const OpCall call = {.row = row,
                       .compute = *type,
                       .outputs = {out_refs.data(), outs},
                       .inputs = {in_refs.data(), ins},
                       .attributes = {numbers.data(), attribute_count}};
  if (!Execute(*first, call)) return nullptr;
  Py_RETURN_NONE;
}

// ---- operators

namespace {

// The op behind an operator, which is never destroyed.
const OpObject::Value* Behind(std::string_view aten) {
  return &reinterpret_cast<OpObject*>(MakeOp(ops::RowOf(aten)))->value;
}

template <const char* kAten, bool kWithOne>
PyObject* Binary(PyObject* a, PyObject* b) {
  static const OpObject::Value* const op = Behind(kAten);
  static PyObject* const one = PyLong_FromLong(1);  // add and sub: times 1
  PyObject* const inputs[] = {a, b, one};
  return CallMap(*op, {inputs, kWithOne ? size_t{3} : size_t{2}}, nullptr, std::nullopt,
                 /*strangers_refuse=*/false);
}

template <const char* kAten, bool kWithOne>
PyObject* InPlace(PyObject* a, PyObject* b) {
  static const OpObject::Value* const op = Behind(kAten);
  static PyObject* const one = PyLong_FromLong(1);
  PyObject* const inputs[] = {a, b, one};
  return CallMap(*op, {inputs, kWithOne ? size_t{3} : size_t{2}}, a, std::nullopt,
                 /*strangers_refuse=*/false);
}

template <const char* kAten>
PyObject* Unary(PyObject* a) {
  static const OpObject::Value* const op = Behind(kAten);
  return CallMap(*op, {&a, 1}, nullptr, std::nullopt, /*strangers_refuse=*/true);
}

template <const char* kAten>
PyObject* Power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return Binary<kAten, false>(a, b);
}
template <const char* kAten>
PyObject* InPlacePower(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return InPlace<kAten, false>(a, b);
}

constexpr char kAdd[] = "add.Tensor", kSub[] = "sub.Tensor", kMul[] = "mul.Tensor", kDiv[] = "div.Tensor",
               kFloorDiv[] = "floor_divide", kRemainder[] = "remainder.Tensor", kPow[] = "pow.Tensor_Tensor",
               kAnd[] = "bitwise_and.Tensor", kOr[] = "bitwise_or.Tensor", kXor[] = "bitwise_xor.Tensor",
               kNot[] = "bitwise_not", kNeg[] = "neg", kAbs[] = "abs", kEq[] = "eq.Tensor",
               kNe[] = "ne.Tensor", kLt[] = "lt.Tensor", kLe[] = "le.Tensor", kGt[] = "gt.Tensor",
               kGe[] = "ge.Tensor", kCopy[] = "_copy_from";

PyObject* Compare(PyObject* a, PyObject* b, int operation) {
  constexpr std::array kCompare = {Binary<kLt, false>, Binary<kLe, false>, Binary<kEq, false>,
                                   Binary<kNe, false>, Binary<kGt, false>, Binary<kGe, false>};
  static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
  return kCompare.at(static_cast<size_t>(operation))(a, b);
}

// +a: a copy.
PyObject* Positive(PyObject* a) {
  static const OpObject::Value* const op = Behind(kCopy);
  Ref out(NewArrayLike(ViewOf(a), ViewOf(a).dtype, ViewOf(a).shape));
  return out ? Ref(CallMap(*op, {&a, 1}, out.get(), std::nullopt, /*strangers_refuse=*/true)).release()
             : nullptr;
}

}  // namespace

std::vector<PyType_Slot> OperatorSlots() {
  const auto slot = [](int number, auto function) {
    return PyType_Slot{number, reinterpret_cast<void*>(function)};
  };
  return {slot(Py_nb_add, Binary<kAdd, true>),
          slot(Py_nb_inplace_add, InPlace<kAdd, true>),
          slot(Py_nb_subtract, Binary<kSub, true>),
          slot(Py_nb_inplace_subtract, InPlace<kSub, true>),
          slot(Py_nb_multiply, Binary<kMul, false>),
          slot(Py_nb_inplace_multiply, InPlace<kMul, false>),
          slot(Py_nb_true_divide, Binary<kDiv, false>),
          slot(Py_nb_inplace_true_divide, InPlace<kDiv, false>),
          slot(Py_nb_floor_divide, Binary<kFloorDiv, false>),
          slot(Py_nb_inplace_floor_divide, InPlace<kFloorDiv, false>),
          slot(Py_nb_remainder, Binary<kRemainder, false>),
          slot(Py_nb_inplace_remainder, InPlace<kRemainder, false>),
          slot(Py_nb_power, Power<kPow>),
          slot(Py_nb_inplace_power, InPlacePower<kPow>),
          slot(Py_nb_and, Binary<kAnd, false>),
          slot(Py_nb_inplace_and, InPlace<kAnd, false>),
          slot(Py_nb_or, Binary<kOr, false>),
          slot(Py_nb_inplace_or, InPlace<kOr, false>),
          slot(Py_nb_xor, Binary<kXor, false>),
          slot(Py_nb_inplace_xor, InPlace<kXor, false>),
          slot(Py_nb_invert, Unary<kNot>),
          slot(Py_nb_negative, Unary<kNeg>),
          slot(Py_nb_absolute, Unary<kAbs>),
          slot(Py_nb_positive, Positive),
          slot(Py_tp_richcompare, Compare)};
}

bool AddOps(PyObject* module) {
  op_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return op_type != nullptr &&
         PyObject_SetAttrString(module, "Op", reinterpret_cast<PyObject*>(op_type)) == 0;
}

PyObject* TableRows(PyObject* /*module*/, PyObject* /*none*/) {
  Ref list(PyList_New(0));
  for (const ops::Row& row : ops::kRows) {
    if (row.family == Family::kTest) continue;
    PyObject* op = IsCallable(row) ? MakeOp(row) : NewRef(Py_None);
    const Ref described(op == nullptr ? nullptr : DescribeRow(row, op));
    if (!list || !described || PyList_Append(list.get(), described.get()) != 0) return nullptr;
  }
  return list.release();
}

}  // namespace xpud::python
