// DLPack's structures, as laid out in its specification (https://dmlc.github.io/dlpack), for CPU memory.
#include <memory>
#include <string_view>
#include <vector>

#include "sdk/python/csrc/array.h"
#include "sdk/python/csrc/host.h"

namespace xpud::python {
namespace {

constexpr int32_t kCpu = 1;
enum Code : uint8_t { kInt = 0, kUnsigned = 1, kFloat = 2, kBFloat = 4, kBool = 6 };

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct VersionedManaged {
  uint32_t major, minor;
  void* context;
  void (*deleter)(VersionedManaged*);
  uint64_t flags;
  Tensor tensor;
};
static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 64 && sizeof(VersionedManaged) == 80);

DataType ToDataType(DType type) {
  const auto bits = static_cast<uint8_t>(8 * ops::SizeOf(type));
  switch (type) {
    case DType::kBool:
      return {kBool, 8, 1};
    case DType::kUInt8:
      return {kUnsigned, 8, 1};
    case DType::kBFloat16:
      return {kBFloat, 16, 1};
    default:
      return {ops::IsFloating(type) ? kFloat : kInt, bits, 1};
  }
}

std::optional<DType> FromDataType(DataType type) {
  for (int i = 0; i < ops::kNumDTypes; ++i) {
    const DataType ours = ToDataType(static_cast<DType>(i));
    if (ours.code == type.code && ours.bits == type.bits && type.lanes == 1) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// The contents of our capsules: the owner of the memory, and the sizes. The consumer may release it on any
// thread.
template <typename Kind>
struct Exported {
  Kind managed{};
  std::array<int64_t, ops::kMaxRank> shape{}, strides{};
  PyObject* owner = nullptr;

  static void Delete(Kind* managed) {
    const PyGILState_STATE state = PyGILState_Ensure();
    auto* exported = static_cast<Exported*>(managed->context);
    Py_XDECREF(exported->owner);
    delete exported;
    PyGILState_Release(state);
  }
};

// A capsule that was not consumed still has its first name.
template <typename Kind, const char* kName>
void EndCapsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kName) == 0) return;
  auto* managed = static_cast<Kind*>(PyCapsule_GetPointer(capsule, kName));
  managed->deleter(managed);
}

constexpr char kName[] = "dltensor", kVersionedName[] = "dltensor_versioned";

template <typename Kind, const char* kCapsuleName>
PyObject* Export(PyObject* owner, void* address, const Shape& shape, DType dtype, Kind managed) {
  auto exported = std::make_unique<Exported<Kind>>();
  exported->managed = managed;
  ArrayView row_major;
  row_major.SetDense(shape);
  exported->shape = shape.sizes;
  exported->strides = row_major.strides;
  exported->managed.tensor = {
      address, kCpu, 0, shape.rank, ToDataType(dtype), exported->shape.data(), exported->strides.data(), 0};
  exported->managed.context = exported.get();
  exported->managed.deleter = Exported<Kind>::Delete;
  PyObject* capsule = PyCapsule_New(&exported->managed, kCapsuleName, EndCapsule<Kind, kCapsuleName>);
  if (capsule == nullptr) return nullptr;
  exported->owner = NewRef(owner);
  static_cast<void>(exported.release());
  return capsule;
}

// Returns the tensor of an unconsumed capsule of either name.
const Tensor* TensorOf(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kVersionedName) != 0) {
    return &static_cast<VersionedManaged*>(PyCapsule_GetPointer(capsule, kVersionedName))->tensor;
  }
  if (PyCapsule_IsValid(capsule, kName) != 0) {
    return &static_cast<Managed*>(PyCapsule_GetPointer(capsule, kName))->tensor;
  }
  PyErr_SetString(PyExc_BufferError, "not a DLPack capsule, or one that was consumed already");
  return nullptr;
}

}  // namespace

PyObject* ExportDLPack(PyObject* /*module*/, PyObject* args) {
  PyObject *owner = nullptr, *sizes = nullptr, *type = nullptr;
  unsigned long long address = 0;
  int versioned = 0;
  if (PyArg_ParseTuple(args, "OKOOp", &owner, &address, &sizes, &type, &versioned) == 0) return nullptr;
  Shape shape;
  const std::optional<DType> dtype = TypeFrom(type);
  if (!dtype.has_value() || !ShapeFrom(sizes, shape)) return nullptr;
  constexpr uint64_t kIsCopied = 2;
  auto* data = reinterpret_cast<void*>(address);
  if (versioned == 0) return Export<Managed, kName>(owner, data, shape, *dtype, {});
  return Export<VersionedManaged, kVersionedName>(
      owner, data, shape, *dtype,
      {.major = 1, .minor = 0, .context = nullptr, .deleter = nullptr, .flags = kIsCopied, .tensor = {}});
}

PyObject* ImportDLPack(PyObject* /*module*/, PyObject* capsule) {
  const Tensor* tensor = TensorOf(capsule);
  if (tensor == nullptr) return nullptr;
  const std::optional<DType> dtype = FromDataType(tensor->dtype);
  if (tensor->device_type != kCpu || !dtype.has_value() || tensor->ndim > ops::kMaxRank) {
    return PyErr_Format(PyExc_BufferError,
                        "a tensor on device type %d, of type code %d with %d bits and %d dimensions",
                        tensor->device_type, tensor->dtype.code, tensor->dtype.bits, tensor->ndim);
  }
  const auto rank = static_cast<size_t>(tensor->ndim);
  Ref shape(TupleOf({tensor->shape, rank}));
  Ref strides(tensor->strides == nullptr ? NewRef(Py_None) : TupleOf({tensor->strides, rank}));
  if (!shape || !strides) return nullptr;
  return Py_BuildValue(
      "KNNO",
      static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(tensor->data)) + tensor->byte_offset,
      shape.release(), strides.release(), TypeObject(*dtype));
}

}  // namespace xpud::python
