#include "sdk/python/csrc/array.h"

#include <algorithm>

#include "sdk/python/csrc/errors.h"
#include "sdk/python/csrc/index.h"
#include "sdk/python/csrc/op.h"

namespace xpud::python {

PyTypeObject* array_base = nullptr;
PyTypeObject* array_type = nullptr;

TensorRef ArrayView::RefAs(const Shape& as, const std::array<int64_t, ops::kMaxRank>& with) const {
  TensorRef ref;
  ref.kind = TensorRef::Kind::kTensor;
  ref.dtype = dtype;
  ref.rank = static_cast<uint8_t>(as.rank);
  ref.buffer = storage->buffer.handle();
  ref.offset = static_cast<uint64_t>(offset) * ops::SizeOf(dtype);
  ref.sizes = as.sizes.data();
  ref.strides = with.data();
  return ref;
}

TensorRef ArrayView::FlatRef() const {
  TensorRef ref = Ref();
  ref.rank = 1;
  ref.sizes = &count;
  ref.strides = nullptr;
  return ref;
}

void ArrayView::SetDense(const Shape& to) {
  shape = to;
  int64_t stride = 1;
  for (size_t d = static_cast<size_t>(to.rank); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(to.sizes[d], 1);
  }
  count = to.count();
  dense = true;
}

void ArrayView::Measure() {
  count = shape.count();
  int64_t stride = 1;
  dense = true;
  for (size_t d = static_cast<size_t>(shape.rank); d-- > 0;) {
    dense = dense && (shape.sizes[d] == 1 || strides[d] == stride);
    stride *= shape.sizes[d];
  }
  dense = dense || count == 0;
}

const ArrayView* CheckArray(PyObject* object) {
  if (IsArray(object)) return &ViewOf(object);
  PyErr_Format(PyExc_TypeError, "expected an xpud.Array, got %R; xpud.asarray makes one", Py_TYPE(object));
  return nullptr;
}

bool ShapeFrom(PyObject* tuple, Shape& shape) {
  if (!PyTuple_Check(tuple)) {
    PyErr_Format(PyExc_TypeError, "a shape must be a tuple of integers, not %R", tuple);
    return false;
  }
  const Py_ssize_t rank = PyTuple_Size(tuple);
  if (rank > ops::kMaxRank) {
    PyErr_Format(PyExc_ValueError, "an array has at most %d dimensions, not %zd", ops::kMaxRank, rank);
    return false;
  }
  shape.rank = static_cast<int>(rank);
  int64_t count = 1;
  for (Py_ssize_t d = 0; d < rank; ++d) {
    const Ref number(PyNumber_Index(PyTuple_GetItem(tuple, d)));
    const int64_t size = number ? PyLong_AsLongLong(number.get()) : -1;
    if (PyErr_Occurred() != nullptr) return false;
    if (size < 0 || __builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count) ||
        count > (int64_t{1} << 56)) {
      PyErr_Format(PyExc_ValueError, "invalid shape %R", tuple);
      return false;
    }
    shape.sizes[static_cast<size_t>(d)] = size;
  }
  return true;
}

PyObject* TupleOf(std::span<const int64_t> values, int64_t scale) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  for (size_t i = 0; tuple != nullptr && i < values.size(); ++i) {
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i] * scale));
  }
  return tuple;
}

namespace {

// Returns the range of elements that a view can access: first and one past the last.
std::pair<int64_t, int64_t> Reach(const ArrayView& view) {
  int64_t last = view.offset;
  for (size_t d = 0; d < static_cast<size_t>(view.shape.rank); ++d) {
    last += (view.shape.sizes[d] - 1) * view.strides[d];
  }
  const auto size = static_cast<int64_t>(ops::SizeOf(view.dtype));
  return {view.offset * size, (last + 1) * size};
}

bool IsSame(const ArrayView& a, const ArrayView& b) {
  return a.offset == b.offset && ops::SizeOf(a.dtype) == ops::SizeOf(b.dtype) && a.shape == b.shape &&
         (a.dense == b.dense) &&
         (a.dense || std::equal(a.strides.begin(), a.strides.begin() + a.shape.rank, b.strides.begin()));
}

}  // namespace

bool Overlap(const ArrayView& out, const ArrayView& in) {
  if (out.storage != in.storage || out.count == 0 || in.count == 0 || IsSame(out, in)) return false;
  const auto [a_first, a_end] = Reach(out);
  const auto [b_first, b_end] = Reach(in);
  return a_first < b_end && b_first < a_end;
}

PyObject* NewArray(const std::shared_ptr<SessionState>& session, uint32_t device, DType dtype,
                   const Shape& shape) {
  std::shared_ptr<Storage> storage =
      Allocate(session, device, static_cast<uint64_t>(shape.count()) * ops::SizeOf(dtype));
  if (storage == nullptr) return nullptr;
  auto* array = Create<ArrayObject>(array_type);
  if (array == nullptr) return nullptr;
  array->value.storage = std::move(storage);
  array->value.dtype = dtype;
  array->value.SetDense(shape);
  return reinterpret_cast<PyObject*>(array);
}

PyObject* NewArrayLike(const ArrayView& like, DType dtype, const Shape& shape) {
  return NewArray(like.storage->session, like.storage->device, dtype, shape);
}

namespace {

// ---- views and copies

// _view(shape, strides, offset): a view of the same memory, in elements.
PyObject* MakeView(PyObject* self, PyObject* args) {
  PyObject *sizes = nullptr, *strides = nullptr;
  long long offset = 0;
  if (PyArg_ParseTuple(args, "OOL", &sizes, &strides, &offset) == 0) return nullptr;
  ArrayView view = ViewOf(self);
  Shape as_sizes;
  if (!ShapeFrom(sizes, view.shape) || !ShapeFrom(strides, as_sizes)) return nullptr;
  view.strides = as_sizes.sizes;
  view.offset = offset;
  view.Measure();
  const int64_t bytes = view.count == 0 ? 0 : Reach(view).second;
  if (as_sizes.rank != view.shape.rank || offset < 0 ||
      bytes > static_cast<int64_t>(view.storage->buffer.bytes())) {
    PyErr_SetString(PyExc_ValueError, "the view reaches beyond the array's memory");
    return nullptr;
  }
  auto* made = Create<ArrayObject>(Py_TYPE(self));
  if (made != nullptr) made->value = std::move(view);
  return reinterpret_cast<PyObject*>(made);
}

// Reads host bytes from Python: an address, which the caller keeps alive, and a size.
bool BytesFrom(PyObject* self, PyObject* args, std::span<std::byte>& bytes) {
  unsigned long long address = 0, count = 0;
  if (PyArg_ParseTuple(args, "KK", &address, &count) == 0) return false;
  const ArrayView& view = ViewOf(self);
  if (!view.dense || count != view.bytes()) {
    PyErr_Format(PyExc_ValueError, "%llu bytes for %llu of a%s array", count,
                 static_cast<unsigned long long>(view.bytes()), view.dense ? "" : " strided");
    return false;
  }
  bytes = {reinterpret_cast<std::byte*>(address), count};
  return true;
}

// Source or target of a copy to or from a dense view. Keeps its memory alive while other threads run.
struct Place {
  explicit Place(const ArrayView& view)
      : storage(view.storage),
        handle(view.storage->buffer.handle()),
        offset(static_cast<uint64_t>(view.offset) * ops::SizeOf(view.dtype)) {
    const Queue* found = QueueOf(*storage->session, storage->device);
    if (found != nullptr) queue = *found;
    open = found != nullptr;
  }
  std::shared_ptr<Storage> storage;
  Queue queue;
  bool open = false;
  BufferHandle handle;
  uint64_t offset;
};

PyObject* Upload(PyObject* self, PyObject* args) {
  std::span<std::byte> bytes;
  if (!BytesFrom(self, args, bytes)) return nullptr;
  const Place to(ViewOf(self));
  if (!to.open) return nullptr;
  absl::Status status;
  {
    const Unlocked unlocked;
    status = to.queue.Upload(bytes, to.handle, to.offset);
  }
  if (!status.ok()) return SetError(status);
  Py_RETURN_NONE;
}

PyObject* Download(PyObject* self, PyObject* args) {
  std::span<std::byte> bytes;
  if (!BytesFrom(self, args, bytes)) return nullptr;
  const Place from(ViewOf(self));
  if (!from.open) return nullptr;
  absl::Status status;
  {
    const Unlocked unlocked;
    status = from.queue.Download(from.handle, from.offset, bytes);
  }
  if (!status.ok()) return SetError(status);
  Py_RETURN_NONE;
}

// _copy_from(source): the elements of a dense array of another device. Returns False if that is of another
// session: then they go by way of the host.
PyObject* CopyFrom(PyObject* self, PyObject* source) {
  if (Py_TYPE(source) != Py_TYPE(self)) {
    PyErr_SetString(PyExc_TypeError, "the source of a copy must be an array");
    return nullptr;
  }
  const ArrayView& there = ViewOf(source);
  const ArrayView& here = ViewOf(self);
  if (!here.dense || !there.dense || here.bytes() != there.bytes()) {
    PyErr_SetString(PyExc_ValueError, "a copy needs two contiguous arrays of one size");
    return nullptr;
  }
  if (here.storage->session != there.storage->session) Py_RETURN_FALSE;
  const Place to(here), from(there);
  if (!to.open || !from.open) return nullptr;
  absl::Status status;
  {
    const Unlocked unlocked;
    status = to.queue.CopyFrom(from.queue, from.handle, from.offset, to.handle, to.offset, here.bytes());
  }
  if (!status.ok()) return SetError(status);
  Py_RETURN_TRUE;
}

// ---- properties

PyObject* ArrayShape(PyObject* self, void* /*closure*/) { return TupleOf(ViewOf(self).shape.span()); }
PyObject* ElementStrides(PyObject* self, void* /*closure*/) {
  const ArrayView& view = ViewOf(self);
  return TupleOf({view.strides.data(), static_cast<size_t>(view.shape.rank)});
}
PyObject* ByteStrides(PyObject* self, void* /*closure*/) {
  const ArrayView& view = ViewOf(self);
  return TupleOf({view.strides.data(), static_cast<size_t>(view.shape.rank)},
                 static_cast<int64_t>(ops::SizeOf(view.dtype)));
}
PyObject* ArrayType(PyObject* self, void* /*closure*/) { return NewRef(TypeObject(ViewOf(self).dtype)); }
PyObject* ArrayRank(PyObject* self, void* /*closure*/) { return PyLong_FromLong(ViewOf(self).shape.rank); }
PyObject* ArrayCount(PyObject* self, void* /*closure*/) { return PyLong_FromLongLong(ViewOf(self).count); }
PyObject* ArrayItemSize(PyObject* self, void* /*closure*/) {
  return PyLong_FromSize_t(ops::SizeOf(ViewOf(self).dtype));
}
PyObject* ArrayBytes(PyObject* self, void* /*closure*/) {
  return PyLong_FromUnsignedLongLong(ViewOf(self).bytes());
}
PyObject* ArrayOffset(PyObject* self, void* /*closure*/) { return PyLong_FromLongLong(ViewOf(self).offset); }
PyObject* ArrayIsDense(PyObject* self, void* /*closure*/) {
  return PyBool_FromLong(ViewOf(self).dense ? 1 : 0);
}
PyObject* ArrayDevice(PyObject* self, void* /*closure*/) {
  const Storage& storage = *ViewOf(self).storage;
  return MakeDevice(storage.session, storage.device);
}
// Returns the same number for arrays that share memory.
PyObject* ArrayMemory(PyObject* self, void* /*closure*/) {
  return PyLong_FromVoidPtr(ViewOf(self).storage.get());
}

Py_ssize_t ArrayLength(PyObject* self) {
  const Shape& shape = ViewOf(self).shape;
  if (shape.rank > 0) return static_cast<Py_ssize_t>(shape.sizes[0]);
  PyErr_SetString(PyExc_TypeError, "an array without dimensions has no length");
  return -1;
}

// _new(DType, shape): an uninitialised, dense array on the same device.
PyObject* MakeBeside(PyObject* self, PyObject* args) {
  PyObject *type = nullptr, *sizes = nullptr;
  if (PyArg_ParseTuple(args, "OO", &type, &sizes) == 0) return nullptr;
  const std::optional<DType> dtype = TypeFrom(type);
  Shape shape;
  if (!dtype.has_value() || !ShapeFrom(sizes, shape)) return nullptr;
  return NewArrayLike(ViewOf(self), *dtype, shape);
}

PyMethodDef methods[] = {
    {"_view", MakeView, METH_VARARGS, nullptr},
    {"_cut", CutView, METH_O, nullptr},
    {"_new", MakeBeside, METH_VARARGS, nullptr},
    {"_upload", Upload, METH_VARARGS, nullptr},
    {"_download", Download, METH_VARARGS, nullptr},
    {"_copy_from", CopyFrom, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyGetSetDef properties[] = {
    {"shape", ArrayShape, nullptr, "Sizes, outermost first: a tuple.", nullptr},
    {"strides", ByteStrides, nullptr, "Bytes between neighbours in each dimension, as in NumPy.", nullptr},
    {"dtype", ArrayType, nullptr, "The element type.", nullptr},
    {"device", ArrayDevice, nullptr, "The device of its memory.", nullptr},
    {"ndim", ArrayRank, nullptr, "Number of dimensions, at most 8.", nullptr},
    {"size", ArrayCount, nullptr, "Number of elements.", nullptr},
    {"itemsize", ArrayItemSize, nullptr, "Bytes of an element.", nullptr},
    {"nbytes", ArrayBytes, nullptr, "Bytes of all elements.", nullptr},
    {"is_contiguous", ArrayIsDense, nullptr, "Whether its elements are in order, without gaps.", nullptr},
    {"_strides", ElementStrides, nullptr, nullptr, nullptr},
    {"_offset", ArrayOffset, nullptr, nullptr, nullptr},
    {"_memory", ArrayMemory, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

bool AddArrayType(PyObject* module) {
  std::vector<PyType_Slot> slots = OperatorSlots();
  slots.push_back({Py_tp_dealloc, reinterpret_cast<void*>(Destroy<ArrayObject>)});
  slots.push_back({Py_tp_methods, methods});
  slots.push_back({Py_tp_getset, properties});
  slots.push_back({Py_sq_length, reinterpret_cast<void*>(ArrayLength)});
  slots.push_back({Py_tp_hash, reinterpret_cast<void*>(PyObject_HashNotImplemented)});
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"xpud._xpud.Array", sizeof(ArrayObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                      slots.data()};
  array_base = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  array_type = array_base;
  return array_base != nullptr &&
         PyObject_SetAttrString(module, "Array", reinterpret_cast<PyObject*>(array_base)) == 0;
}

}  // namespace xpud::python
