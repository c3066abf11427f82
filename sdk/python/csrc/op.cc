#include "sdk/python/csrc/op.h"

#include <algorithm>
#include <array>

#include "sdk/python/csrc/errors.h"

namespace xpud::python {
namespace {

using ops::Family;

PyTypeObject* op_type = nullptr;

// Converts a NumPy scalar, or a 0-d array of it, to a Python number.
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

// Reads an axis: None (all dimensions), an integer, or a tuple of integers.
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
  if (dtype != Py_None) how.dtype = TypeFrom(dtype);
  if (attribute != Py_None) how.attribute = PyFloat_AsDouble(attribute);
  return PyErr_Occurred() != nullptr ? nullptr : CallReduce(op, *view, how);
}

PyObject* CallOp(PyObject* self, PyObject* args, PyObject* keywords) {
  const OpObject::Value& op = reinterpret_cast<OpObject*>(self)->value;
  return op.row->family == Family::kMap ? CallAsMap(op, args, keywords) : CallAsReduction(op, args, keywords);
}

// ---- the type

// _describe(doc, defaults, signature): sets the documentation, the default values, which the table lacks, and
// the text of the signature.
PyObject* Describe(PyObject* self, PyObject* args) {
  PyObject *doc = nullptr, *defaults = nullptr, *signature = nullptr;
  if (PyArg_ParseTuple(args, "OOO", &doc, &defaults, &signature) == 0) return nullptr;
  OpObject::Value& op = reinterpret_cast<OpObject*>(self)->value;
  if (!PyTuple_Check(defaults) || PyTuple_Size(defaults) > op.row->inputs) {
    PyErr_Format(PyExc_TypeError, "%U has no such defaults: %R", op.name, defaults);
    return nullptr;
  }
  const Ref old_doc(std::exchange(op.doc, NewRef(doc)));
  const Ref old_signature(std::exchange(op.signature, NewRef(signature)));
  const Ref old_defaults(std::exchange(op.defaults, NewRef(defaults)));
  Py_RETURN_NONE;
}

PyObject* OpName(PyObject* self, void* /*closure*/) {
  return NewRef(reinterpret_cast<OpObject*>(self)->value.name);
}
PyObject* OpDoc(PyObject* self, void* /*closure*/) {
  return NewRef(reinterpret_cast<OpObject*>(self)->value.doc);
}
PyObject* OpSignature(PyObject* self, void* /*closure*/) {
  return NewRef(reinterpret_cast<OpObject*>(self)->value.signature);
}
// An op in a class is not bound to its objects. That the type has __get__ makes ops routines for inspect and
// help(), which then show the signature.
PyObject* OpGet(PyObject* self, PyObject* /*object*/, PyObject* /*type*/) { return NewRef(self); }
PyObject* OpText(PyObject* self) {
  return PyUnicode_FromFormat("<xpud op '%U'>", reinterpret_cast<OpObject*>(self)->value.name);
}

PyMethodDef methods[] = {{"_describe", Describe, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {
    {"__name__", OpName, nullptr, nullptr, nullptr},
    {"__doc__", OpDoc, nullptr, nullptr, nullptr},
    {"__text_signature__", OpSignature, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Destroy<OpObject>)},
    {Py_tp_call, reinterpret_cast<void*>(CallOp)},
    {Py_tp_repr, reinterpret_cast<void*>(OpText)},
    {Py_tp_descr_get, reinterpret_cast<void*>(OpGet)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, nullptr},
};
PyType_Spec spec = {"xpud._xpud.Op", sizeof(OpObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

PyObject* MakeOp(const ops::Row& row) {
  auto* op = Create<OpObject>(op_type);
  if (op == nullptr) return nullptr;
  op->value.row = &row;
  op->value.name = PyUnicode_FromString(NamesOf(row).front().c_str());
  op->value.defaults = PyTuple_New(0);
  op->value.doc = PyUnicode_FromString("");
  op->value.signature = NewRef(Py_None);
  return reinterpret_cast<PyObject*>(op);
}

bool AddOps(PyObject* module) {
  op_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return op_type != nullptr &&
         PyObject_SetAttrString(module, "Op", reinterpret_cast<PyObject*>(op_type)) == 0;
}

}  // namespace xpud::python
