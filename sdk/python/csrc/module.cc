// The Python module xpud._xpud, on which the package xpud (sdk/python/xpud) is built.
#include "sdk/python/csrc/array.h"
#include "sdk/python/csrc/errors.h"
#include "sdk/python/csrc/host.h"
#include "sdk/python/csrc/op.h"
#include "sdk/python/csrc/session.h"
#include "sdk/python/csrc/share.h"
#include "sdk/python/csrc/types.h"

namespace xpud::python {
namespace {

// register(Array, Device): sets the package's classes, of which new objects are made.
PyObject* Register(PyObject* /*module*/, PyObject* args) {
  PyObject *array = nullptr, *device = nullptr;
  if (PyArg_ParseTuple(args, "O!O!", &PyType_Type, &array, &PyType_Type, &device) == 0) return nullptr;
  array_type = reinterpret_cast<PyTypeObject*>(NewRef(array));
  device_type = reinterpret_cast<PyTypeObject*>(NewRef(device));
  Py_RETURN_NONE;
}

// register_types(tuple): sets the package's object for each element type. Called before anything else.
PyObject* RegisterTypes(PyObject* /*module*/, PyObject* types) {
  if (!SetTypeObjects(types)) return nullptr;
  Py_RETURN_NONE;
}

// empty(device, DType, shape): returns an uninitialised, row-major array.
PyObject* Empty(PyObject* /*module*/, PyObject* args) {
  PyObject *device = nullptr, *type = nullptr, *sizes = nullptr;
  if (PyArg_ParseTuple(args, "OOO", &device, &type, &sizes) == 0) return nullptr;
  const DeviceObject::Value* on = DeviceOf(device);
  if (on == nullptr) return nullptr;
  const std::optional<DType> dtype = TypeFrom(type);
  Shape shape;
  if (!dtype.has_value() || !ShapeFrom(sizes, shape)) return nullptr;
  const DeviceObject::Value where = *on;
  return NewArray(where.session, where.index, *dtype, shape);
}

// promote(DType or Kind's number.., ..): returns the result type of elementwise ops.
PyObject* PromoteTypes(PyObject* /*module*/, PyObject* args) {
  std::optional<DType> result;
  for (Py_ssize_t i = 0; i < PyTuple_Size(args); ++i) {
    const std::optional<DType> type = TypeFrom(PyTuple_GetItem(args, i));
    if (!type.has_value()) return nullptr;
    result = result.has_value() ? Promote(*result, *type) : *type;
  }
  if (!result.has_value()) return PyErr_Format(PyExc_TypeError, "no types to promote");
  return NewRef(TypeObject(*result));
}

// types(): returns (name, bytes, floating) of each element type, in wire order.
PyObject* WireTypes(PyObject* /*module*/, PyObject* /*none*/) {
  PyObject* tuple = PyTuple_New(ops::kNumDTypes);
  for (int i = 0; tuple != nullptr && i < ops::kNumDTypes; ++i) {
    const ops::DTypeInfo& info = ops::Info(static_cast<DType>(i));
    PyTuple_SetItem(tuple, i,
                    Py_BuildValue("sii", std::string(info.name).c_str(), info.size, info.floating ? 1 : 0));
  }
  return tuple;
}

PyMethodDef methods[] = {
    {"register", Register, METH_VARARGS, nullptr},
    {"register_types", RegisterTypes, METH_O, nullptr},
    {"empty", Empty, METH_VARARGS, nullptr},
    {"execute", ExecuteRow, METH_VARARGS, nullptr},
    {"infer", InferRow, METH_VARARGS, nullptr},
    {"rows", TableRows, METH_NOARGS, nullptr},
    {"types", WireTypes, METH_NOARGS, nullptr},
    {"promote", PromoteTypes, METH_VARARGS, nullptr},
    {"share", ShareArray, METH_O, nullptr},
    {"attach", AttachArray, METH_VARARGS, nullptr},
    {"export_dlpack", ExportDLPack, METH_VARARGS, nullptr},
    {"import_dlpack", ImportDLPack, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                          .m_name = "xpud._xpud",
                          .m_doc = nullptr,
                          .m_size = -1,
                          .m_methods = methods,
                          .m_slots = nullptr,
                          .m_traverse = nullptr,
                          .m_clear = nullptr,
                          .m_free = nullptr};

}  // namespace
}  // namespace xpud::python

PyMODINIT_FUNC PyInit__xpud() {  // NOLINT(bugprone-reserved-identifier): CPython's name for it
  using namespace xpud::python;
  Ref module(PyModule_Create(&definition));
  if (!module || !AddErrors(module.get()) || !AddSessionTypes(module.get()) || !AddOps(module.get()) ||
      !AddArrayType(module.get()) || !AddHostMemory(module.get()) ||
      PyModule_AddStringConstant(module.get(), "version", XPUD_VERSION) != 0) {
    return nullptr;
  }
  return module.release();
}
