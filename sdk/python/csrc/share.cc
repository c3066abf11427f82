#include "sdk/python/csrc/share.h"

#include <utility>

#include "sdk/python/csrc/array.h"
#include "sdk/python/csrc/errors.h"
#include "sdk/python/csrc/session.h"
#include "sdk/python/csrc/types.h"

namespace xpud::python {

PyObject* ShareArray(PyObject* /*module*/, PyObject* array) {
  const ArrayView* const view = CheckArray(array);
  if (view == nullptr) return nullptr;
  const std::shared_ptr<Storage> storage = view->storage;  // stays while other threads run
  Session* const session = storage->session->session.get();
  if (session == nullptr) return SetError(absl::UnavailableError("the session was closed"));
  absl::StatusOr<Ticket> ticket = Ticket();
  {
    const Unlocked unlocked;
    ticket = session->Share(storage->buffer);
  }
  if (!ticket.ok()) return SetError(ticket.status());
  return Py_BuildValue("KKKKI", static_cast<unsigned long long>(ticket->key[0]),
                       static_cast<unsigned long long>(ticket->key[1]),
                       static_cast<unsigned long long>(ticket->memory),
                       static_cast<unsigned long long>(ticket->bytes), ticket->device);
}

PyObject* AttachArray(PyObject* /*module*/, PyObject* args) {
  PyObject *device = nullptr, *type = nullptr;
  unsigned long long low = 0, high = 0, memory = 0, bytes = 0;
  unsigned int index = 0;
  if (PyArg_ParseTuple(args, "O(KKKKI)O", &device, &low, &high, &memory, &bytes, &index, &type) == 0)
    return nullptr;
  const DeviceObject::Value* const on = DeviceOf(device);
  if (on == nullptr) return nullptr;
  const std::optional<DType> dtype = TypeFrom(type);
  if (!dtype.has_value()) return nullptr;
  const std::shared_ptr<SessionState> state = on->session;
  Session* const session = state->session.get();
  if (session == nullptr) return SetError(absl::UnavailableError("the session was closed"));
  absl::StatusOr<Buffer> buffer = Buffer();
  {
    const Unlocked unlocked;
    buffer = session->Attach(Ticket{{low, high}, memory, bytes, index});
  }
  if (!buffer.ok()) return SetError(buffer.status());
  const uint32_t where = buffer->device();
  Shape shape;
  shape.rank = 1;
  shape.sizes[0] = static_cast<int64_t>(buffer->bytes() / ops::SizeOf(*dtype));
  auto* const array = Create<ArrayObject>(array_type);
  if (array == nullptr) return nullptr;
  array->value.storage = std::make_shared<Storage>(state, where, *std::move(buffer));
  array->value.dtype = *dtype;
  array->value.SetDense(shape);
  return reinterpret_cast<PyObject*>(array);
}

}  // namespace xpud::python
