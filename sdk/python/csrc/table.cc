// The op table for the package, and any row of it as a command.
#include <algorithm>
#include <array>

#include "proto/ops/family.h"
#include "sdk/python/csrc/errors.h"
#include "sdk/python/csrc/op.h"

namespace xpud::python {
namespace {

using ops::Family;

bool IsCallable(const ops::Row& row) { return row.family == Family::kMap || row.family == Family::kReduce; }

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

// Returns (name, whether it is a list) of each.
PyObject* ParametersTuple(std::span<const ops::Parameter> parameters) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(parameters.size()));
  for (size_t i = 0; tuple != nullptr && i < parameters.size(); ++i) {
    const std::string name(parameters[i].name);
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i),
                    Py_BuildValue("(sO)", name.c_str(), parameters[i].is(ops::kList) ? Py_True : Py_False));
  }
  return tuple;
}

// Returns (name, type, default or None) of each.
PyObject* AttributesTuple(std::span<const ops::Attribute> attributes) {
  constexpr std::array kTypes = {"integer", "real", "bool", "dimension", "dtype", "integers", "reals"};
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(attributes.size()));
  for (size_t i = 0; tuple != nullptr && i < attributes.size(); ++i) {
    const ops::Attribute& attribute = attributes[i];
    const std::string name(attribute.name);
    PyTuple_SetItem(
        tuple, static_cast<Py_ssize_t>(i),
        Py_BuildValue("(ssN)", name.c_str(), kTypes[static_cast<size_t>(attribute.type)],
                      attribute.required ? NewRef(Py_None) : PyFloat_FromDouble(attribute.value)));
  }
  return tuple;
}

// The name of the row that finds the size of `row`'s results, or None.
PyObject* SizingName(const ops::Row& row) {
  const std::string_view sized_by = ops::DescriptorOf(row).sized_by;
  return sized_by.empty() ? NewRef(Py_None)
                          : PyUnicode_FromString(NamesOf(ops::RowOf(sized_by)).front().c_str());
}

PyObject* DescribeRow(const ops::Row& row, PyObject* op) {
  const std::string formula(row.formula), aten(row.aten), family(ops::DescriptorOf(row).name);
  constexpr std::array kRules = {"promote", "float", "bool", "same", "any", "sum", "index", "value_index"};
  return Py_BuildValue("{s:i,s:s,s:N,s:s,s:i,s:i,s:s,s:s,s:N,s:i,s:N,s:N,s:N,s:N}", "number", row.number,
                       "aten", aten.c_str(), "names", NamesTuple(row), "family", family.c_str(), "inputs",
                       row.inputs, "optional", row.optional, "formula", formula.c_str(), "types",
                       kRules[static_cast<size_t>(row.types)], "dtypes", TypesTuple(row.dtypes), "outputs",
                       row.outputs, "op", op, "parameters", ParametersTuple(ops::DescriptorOf(row).inputs),
                       "attributes", AttributesTuple(ops::DescriptorOf(row).attributes), "sized_by",
                       SizingName(row));
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

// ---- any row

namespace {

// Reads a tuple's arrays and numbers as operands. None is an absent operand.
bool ReadRefs(PyObject* tuple, std::vector<TensorRef>& refs, const ArrayView*& first) {
  refs.resize(static_cast<size_t>(PyTuple_Size(tuple)));
  for (size_t i = 0; i < refs.size(); ++i) {
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
      PyErr_SetString(PyExc_ValueError, "the arrays are on different devices, or in different sessions");
      return false;
    }
    refs[i] = view.Ref();
  }
  return true;
}

bool ReadNumbers(PyObject* tuple, std::vector<ops::Number>& numbers) {
  numbers.resize(static_cast<size_t>(PyTuple_Size(tuple)));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = NumberFrom(PyTuple_GetItem(tuple, static_cast<Py_ssize_t>(i)));
    if (!number.has_value()) {
      if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_TypeError, "an attribute must be a number");
      return false;
    }
    numbers[i] = number->value;
  }
  return true;
}

}  // namespace

namespace {

// A command from Python: (row, outputs, inputs, attributes, compute, lists, size).
struct RowCall {
  const ops::Row* row = nullptr;
  std::vector<TensorRef> outputs, inputs;
  std::vector<ops::Number> attributes, lengths;
  std::vector<uint16_t> lists;
  const ArrayView* first = nullptr;
  DType compute = DType::kFloat32;
  int64_t size = 0;  // InferRow: the first one of sized outputs
};

bool ReadCall(PyObject* args, RowCall& call) {
  int number = 0;
  PyObject *outputs = nullptr, *inputs = nullptr, *attributes = nullptr, *compute = Py_None, *lists = nullptr;
  long long size = 0;
  if (PyArg_ParseTuple(args, "iO!O!O!|OO!L", &number, &PyTuple_Type, &outputs, &PyTuple_Type, &inputs,
                       &PyTuple_Type, &attributes, &compute, &PyTuple_Type, &lists, &size) == 0) {
    return false;
  }
  call.size = size;
  call.row = ops::FindRow(static_cast<uint16_t>(number));
  if (call.row == nullptr) {
    PyErr_Format(PyExc_ValueError, "the op table has no row %d", number);
    return false;
  }
  if (!ReadRefs(outputs, call.outputs, call.first) || !ReadRefs(inputs, call.inputs, call.first) ||
      !ReadNumbers(attributes, call.attributes) || (lists != nullptr && !ReadNumbers(lists, call.lengths)))
    return false;
  for (const ops::Number& length : call.lengths)
    call.lists.push_back(static_cast<uint16_t>(std::clamp<int64_t>(length.AsInteger(), 0, 0xffff)));
  if (call.first == nullptr) {
    PyErr_SetString(PyExc_ValueError, "a command needs at least one array");
    return false;
  }
  const std::optional<DType> type = compute == Py_None ? call.first->dtype : TypeFrom(compute);
  if (!type.has_value()) return false;
  call.compute = *type;
  return true;
}

ops::Operand OperandOf(const TensorRef& ref) {
  ops::Operand operand;
  operand.present = ref.kind != TensorRef::Kind::kAbsent;
  operand.immediate = ref.kind == TensorRef::Kind::kImmediate;
  operand.dtype = ref.dtype;
  operand.rank = ref.kind == TensorRef::Kind::kTensor ? ref.rank : 0;
  std::copy_n(ref.sizes, operand.rank, operand.sizes.begin());
  return operand;
}

}  // namespace

PyObject* ExecuteRow(PyObject* /*module*/, PyObject* args) {
  RowCall call;
  if (!ReadCall(args, call)) return nullptr;
  const OpCall op = {.row = call.row,
                     .compute = call.compute,
                     .outputs = call.outputs,
                     .inputs = call.inputs,
                     .attributes = call.attributes,
                     .lists = call.lists};
  if (!Execute(*call.first, op)) return nullptr;
  Py_RETURN_NONE;
}

// Returns (shape, type) of each output of a call without outputs, as inferred by its family.
PyObject* InferRow(PyObject* /*module*/, PyObject* args) {
  RowCall call;
  if (!ReadCall(args, call)) return nullptr;
  const ops::FamilyDescriptor& family = ops::DescriptorOf(*call.row);
  if (family.infer == nullptr)
    return SetError(absl::UnimplementedError("the caller of this op gives its outputs: use execute"));
  std::vector<ops::Operand> inputs, outputs(family.outputs.size());
  for (const TensorRef& ref : call.inputs) inputs.push_back(OperandOf(ref));
  for (size_t o = 0; o < outputs.size(); ++o)
    if (family.outputs[o].is(ops::kSized)) outputs[o].sizes[0] = call.size;
  const ops::Call shapes = {.row = call.row,
                            .compute = call.compute,
                            .outputs = outputs,
                            .inputs = inputs,
                            .attributes = call.attributes,
                            .lists = call.lists};
  if (const absl::Status status = family.infer(shapes, outputs); !status.ok()) return SetError(status);
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
  for (size_t o = 0; tuple != nullptr && o < outputs.size(); ++o) {
    PyObject* shape = PyTuple_New(outputs[o].rank);
    for (int d = 0; shape != nullptr && d < outputs[o].rank; ++d)
      PyTuple_SetItem(shape, d, PyLong_FromLongLong(outputs[o].sizes[static_cast<size_t>(d)]));
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(o),
                    Py_BuildValue("(NN)", shape, NewRef(TypeObject(outputs[o].dtype))));
  }
  return tuple;
}

}  // namespace xpud::python
