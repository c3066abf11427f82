#include "sdk/python/csrc/session.h"

#include <algorithm>

#include "sdk/python/csrc/errors.h"

namespace xpud::python {

PyTypeObject* session_base = nullptr;
PyTypeObject* device_base = nullptr;
PyTypeObject* device_type = nullptr;

Storage::Storage(std::shared_ptr<SessionState> session_of, uint32_t device_of, Buffer memory)
    : session(std::move(session_of)), device(device_of), buffer(std::move(memory)), next(session->storages) {
  if (next != nullptr) next->previous = this;
  session->storages = this;
}

Storage::~Storage() {
  if (next != nullptr) next->previous = previous;
  (previous != nullptr ? previous->next : session->storages) = next;
}

const DeviceObject::Value* DeviceOf(PyObject* object) {
  if (PyObject_TypeCheck(object, device_base) != 0) return &reinterpret_cast<DeviceObject*>(object)->value;
  PyErr_Format(PyExc_TypeError, "expected an xpud.Device, got %R", object);
  return nullptr;
}

const Queue* QueueOf(const SessionState& session, uint32_t device) {
  if (device < session.queues.size()) return &session.queues[device];
  SetError(absl::UnavailableError("the session was closed"));
  return nullptr;
}

std::shared_ptr<Storage> Allocate(const std::shared_ptr<SessionState>& session, uint32_t device,
                                  uint64_t bytes) {
  const Queue* found = QueueOf(*session, device);
  if (found == nullptr) return nullptr;
  const Queue queue = *found;  // a copy, because another thread may close the session
  absl::StatusOr<Buffer> buffer = absl::UnknownError("");
  {
    const Unlocked unlocked;
    buffer = queue.Allocate(bytes);
  }
  if (!buffer.ok()) {
    SetError(buffer.status());
    return nullptr;
  }
  return std::make_shared<Storage>(session, device, *std::move(buffer));
}

PyObject* MakeDevice(const std::shared_ptr<SessionState>& session, uint32_t index) {
  auto* device = Create<DeviceObject>(device_type);
  if (device == nullptr) return nullptr;
  device->value.session = session;
  device->value.index = index;
  return reinterpret_cast<PyObject*>(device);
}

namespace {

SessionState& StateOf(PyObject* self) { return *reinterpret_cast<SessionObject*>(self)->value; }

// Sets the exception if the session was closed.
Session* OpenSession(const SessionState& state) {
  if (state.session == nullptr) SetError(absl::UnavailableError("the session was closed"));
  return state.session.get();
}

// Session(address, client_name, timeout in seconds, start_daemon)
PyObject* NewSession(PyTypeObject* type, PyObject* args, PyObject* /*keywords*/) {
  const char *address = "", *client_name = "";
  double timeout = 10;
  int start_daemon = 1;
  if (PyArg_ParseTuple(args, "ssdp", &address, &client_name, &timeout, &start_daemon) == 0) return nullptr;
  ConnectOptions options;
  options.address = address;
  options.client_name = client_name;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000));
  options.start_daemon = start_daemon != 0;
  options.interrupt = CheckInterrupt;
  absl::StatusOr<std::unique_ptr<Session>> session = absl::UnknownError("");
  {
    const Unlocked unlocked;
    session = Session::Connect(options);
  }
  if (!session.ok()) return SetConnectError(session.status());
  auto* self = Create<SessionObject>(type);
  if (self == nullptr) return nullptr;
  self->value = std::make_shared<SessionState>();
  SessionState& state = *self->value;
  state.session = *std::move(session);
  for (uint32_t i = 0; i < state.session->devices().size(); ++i) {
    state.queues.push_back(state.session->DefaultQueue(i));
  }
  return reinterpret_cast<PyObject*>(self);
}

PyObject* CloseSession(PyObject* self, PyObject* /*none*/) {
  SessionState& state = StateOf(self);
  for (Storage* storage = state.storages; storage != nullptr; storage = storage->next) storage->buffer.Free();
  state.queues.clear();
  std::unique_ptr<Session> ended = std::move(state.session);
  {
    const Unlocked unlocked;  // it may wait
    ended.reset();
  }
  Py_RETURN_NONE;
}

PyObject* ReportUnreadError(PyObject* self, PyObject* /*none*/) {
  const std::shared_ptr<SessionState> state = reinterpret_cast<SessionObject*>(self)->value;
  if (state->session != nullptr) {
    const Unlocked unlocked;
    state->session->ReportUnreadError();
  }
  Py_RETURN_NONE;
}

PyObject* SessionDevices(PyObject* self, void* /*closure*/) {
  const auto& state = reinterpret_cast<SessionObject*>(self)->value;
  Ref tuple(PyTuple_New(static_cast<Py_ssize_t>(state->queues.size())));
  for (uint32_t i = 0; tuple && i < state->queues.size(); ++i) {
    PyObject* device = MakeDevice(state, i);
    if (device == nullptr) return nullptr;
    PyTuple_SetItem(tuple.get(), i, device);
  }
  return tuple.release();
}

PyObject* SessionAddress(PyObject* self, void* /*closure*/) {
  const Session* session = OpenSession(StateOf(self));
  return session == nullptr ? nullptr : PyUnicode_FromString(session->address().c_str());
}

PyObject* SessionStartedDaemon(PyObject* self, void* /*closure*/) {
  const Session* session = OpenSession(StateOf(self));
  return session == nullptr ? nullptr : PyBool_FromLong(session->started_daemon() ? 1 : 0);
}

PyObject* SessionClosed(PyObject* self, void* /*closure*/) {
  return PyBool_FromLong(StateOf(self).session == nullptr ? 1 : 0);
}

PyObject* SetNice(PyObject* self, PyObject* nice) {
  const long value = PyLong_AsLong(nice);
  if (value == -1 && PyErr_Occurred() != nullptr) return nullptr;
  Session* const session = OpenSession(StateOf(self));
  if (session == nullptr) return nullptr;
  absl::Status status;
  {
    const Unlocked unlocked;
    status = session->SetNice(static_cast<int>(std::clamp(value, -1L, 1000L)));
  }
  if (!status.ok()) return SetError(status);
  Py_RETURN_NONE;
}

PyObject* CheckSession(PyObject* self, PyObject* /*none*/) {
  const Session* session = OpenSession(StateOf(self));
  if (session == nullptr) return nullptr;
  const absl::Status status = session->status();
  if (!status.ok()) return SetError(status);
  Py_RETURN_NONE;
}

// ---- Device

const DeviceObject::Value& ValueOf(PyObject* self) { return reinterpret_cast<DeviceObject*>(self)->value; }

// name, kind, vendor, total_memory, compute_units, pci_address
PyObject* DeviceDescription(PyObject* self, PyObject* /*none*/) {
  const auto& [state, index] = ValueOf(self);
  const Session* session = OpenSession(*state);
  if (session == nullptr) return nullptr;
  const DeviceInfo& info = session->devices()[index];
  return Py_BuildValue("sssKIs", info.name.c_str(), info.kind.c_str(), info.vendor.c_str(),
                       static_cast<unsigned long long>(info.total_memory), info.compute_units,
                       info.pci_address.c_str());
}

PyObject* DeviceSynchronize(PyObject* self, PyObject* /*none*/) {
  const auto& [state, index] = ValueOf(self);
  const Queue* found = QueueOf(*state, index);
  if (found == nullptr) return nullptr;
  const Queue queue = *found;
  absl::Status status;
  {
    const Unlocked unlocked;
    status = queue.Synchronize();
  }
  if (!status.ok()) return SetError(status);
  Py_RETURN_NONE;
}

PyObject* DeviceMemory(PyObject* self, PyObject* /*none*/) {
  const auto& [state, index] = ValueOf(self);
  const Session* session = OpenSession(*state);
  if (session == nullptr) return nullptr;
  const MemoryStats stats = session->Memory(index);
  return Py_BuildValue("{sKsKsK}", "buffers", static_cast<unsigned long long>(stats.buffers),
                       "allocated_bytes", static_cast<unsigned long long>(stats.allocated_bytes),
                       "peak_allocated_bytes", static_cast<unsigned long long>(stats.peak_allocated_bytes));
}

PyObject* DeviceResetPeak(PyObject* self, PyObject* /*none*/) {
  const auto& [state, index] = ValueOf(self);
  Session* session = OpenSession(*state);
  if (session == nullptr) return nullptr;
  session->ResetPeakMemory(index);
  Py_RETURN_NONE;
}

PyObject* DeviceIndex(PyObject* self, void* /*closure*/) {
  return PyLong_FromUnsignedLong(ValueOf(self).index);
}
PyObject* DeviceSession(PyObject* self, void* /*closure*/) {
  return PyLong_FromVoidPtr(ValueOf(self).session.get());
}

PyObject* CompareDevices(PyObject* self, PyObject* other, int operation) {
  if (PyObject_TypeCheck(other, device_base) == 0 || (operation != Py_EQ && operation != Py_NE)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const auto &a = ValueOf(self), &b = ValueOf(other);
  const bool equal = a.session == b.session && a.index == b.index;
  return PyBool_FromLong(equal == (operation == Py_EQ) ? 1 : 0);
}

Py_hash_t HashDevice(PyObject* self) {
  const auto hash = static_cast<Py_hash_t>((reinterpret_cast<uintptr_t>(ValueOf(self).session.get()) >> 4) +
                                           ValueOf(self).index);
  return hash == -1 ? -2 : hash;
}

PyMethodDef session_methods[] = {
    {"_close", CloseSession, METH_NOARGS, nullptr},
    {"_check", CheckSession, METH_NOARGS, nullptr},
    {"_set_nice", SetNice, METH_O, nullptr},
    {"_report_unread_error", ReportUnreadError, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef session_properties[] = {
    {"devices", SessionDevices, nullptr, "The devices visible to this process: a tuple, possibly empty.",
     nullptr},
    {"address", SessionAddress, nullptr, "The daemon's address: a socket's path, or HOST:PORT.", nullptr},
    {"started_daemon", SessionStartedDaemon, nullptr, "Whether connecting started a private daemon.",
     nullptr},
    {"closed", SessionClosed, nullptr, "Whether close() was called.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot session_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(NewSession)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Destroy<SessionObject>)},
    {Py_tp_methods, session_methods},
    {Py_tp_getset, session_properties},
    {0, nullptr},
};
PyType_Spec session_spec = {"xpud._xpud.Session", sizeof(SessionObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, session_slots};

PyMethodDef device_methods[] = {
    {"_description", DeviceDescription, METH_NOARGS, nullptr},
    {"_synchronize", DeviceSynchronize, METH_NOARGS, nullptr},
    {"_memory", DeviceMemory, METH_NOARGS, nullptr},
    {"_reset_peak", DeviceResetPeak, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef device_properties[] = {
    {"index", DeviceIndex, nullptr, "Its index among the session's devices.", nullptr},
    {"_session_key", DeviceSession, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
PyType_Slot device_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Destroy<DeviceObject>)},
    {Py_tp_methods, device_methods},
    {Py_tp_getset, device_properties},
    {Py_tp_richcompare, reinterpret_cast<void*>(CompareDevices)},
    {Py_tp_hash, reinterpret_cast<void*>(HashDevice)},
    {0, nullptr},
};
PyType_Spec device_spec = {"xpud._xpud.Device", sizeof(DeviceObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, device_slots};

}  // namespace

bool AddSessionTypes(PyObject* module) {
  session_base = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&session_spec));
  device_base = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&device_spec));
  device_type = device_base;
  return session_base != nullptr && device_base != nullptr &&
         PyObject_SetAttrString(module, "Session", reinterpret_cast<PyObject*>(session_base)) == 0 &&
         PyObject_SetAttrString(module, "Device", reinterpret_cast<PyObject*>(device_base)) == 0;
}

}  // namespace xpud::python
