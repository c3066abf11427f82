#include "sdk/python/csrc/host.h"

#include "sdk/python/csrc/errors.h"
#include "sdk/python/csrc/session.h"

namespace xpud::python {
namespace {

struct HostMemoryObject {
  PyObject_HEAD HostBuffer value;
};

PyObject* NewHostMemory(PyTypeObject* type, PyObject* args, PyObject* /*keywords*/) {
  PyObject* device = nullptr;
  unsigned long long bytes = 0;
  if (PyArg_ParseTuple(args, "OK", &device, &bytes) == 0) return nullptr;
  const DeviceObject::Value* on = DeviceOf(device);
  if (on == nullptr || QueueOf(*on->session, on->index) == nullptr) return nullptr;
  const std::shared_ptr<SessionState> state = on->session;
  absl::StatusOr<HostBuffer> made = state->session->AllocateHost(bytes);
  if (!made.ok()) return SetError(made.status());
  auto* self = Create<HostMemoryObject>(type);
  if (self == nullptr) return nullptr;
  self->value = *std::move(made);
  return reinterpret_cast<PyObject*>(self);
}

PyObject* Address(PyObject* self, void* /*closure*/) {
  return PyLong_FromVoidPtr(reinterpret_cast<HostMemoryObject*>(self)->value.bytes().data());
}
PyObject* Bytes(PyObject* self, void* /*closure*/) {
  return PyLong_FromSize_t(reinterpret_cast<HostMemoryObject*>(self)->value.bytes().size());
}

PyGetSetDef properties[] = {
    {"address", Address, nullptr, nullptr, nullptr},
    {"nbytes", Bytes, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(NewHostMemory)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Destroy<HostMemoryObject>)},
    {Py_tp_getset, properties},
    {0, nullptr},
};
PyType_Spec spec = {"xpud._xpud.HostMemory", sizeof(HostMemoryObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool AddHostMemory(PyObject* module) {
  const Ref type(PyType_FromSpec(&spec));
  return type && PyObject_SetAttrString(module, "HostMemory", type.get()) == 0;
}

}  // namespace xpud::python
