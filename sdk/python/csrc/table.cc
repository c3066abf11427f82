// The op table as the package reads it, and any row of it as a command.
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

PyObject* DescribeRow(const ops::Row& row, PyObject* op) {
  const std::string formula(row.formula), aten(row.aten), family(ops::DescriptorOf(row).name);
  constexpr std::array kRules = {"promote", "float", "bool", "same", "any", "sum", "index", "value_index"};
  return Py_BuildValue("{s:i,s:s,s:N,s:s,s:i,s:i,s:s,s:s,s:N,s:i,s:N}", "number", row.number, "aten",
                       aten.c_str(), "names", NamesTuple(row), "family", family.c_str(), "inputs", row.inputs,
                       "optional", row.optional, "formula", formula.c_str(), "types",
                       kRules[static_cast<size_t>(row.types)], "dtypes", TypesTuple(row.dtypes), "outputs",
                       row.outputs, "op", op);
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
  const std::optional<DType> type = compute == Py_None ? first->dtype : TypeFrom(compute);
  if (!type.has_value()) return nullptr;
  const OpCall call = {.row = row,
                       .compute = *type,
                       .outputs = {out_refs.data(), outs},
                       .inputs = {in_refs.data(), ins},
                       .attributes = {numbers.data(), attribute_count}};
  if (!Execute(*first, call)) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace xpud::python
