// xpud._xpud.Op: an elementwise op or a reduction, made from its row of the op table and called as a
// function; and Python's operators on arrays. REQUIRES: the interpreter lock, which is released while a
// command is sent.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sdk/python/csrc/array.h"
#include "sdk/python/csrc/python.h"
#include "xpud/op_call.h"

namespace xpud::python {

struct OpObject {
  PyObject_HEAD struct Value {
    const ops::Row* row = nullptr;
    PyObject* name = nullptr;      // ATen's name, without overload
    PyObject* defaults = nullptr;  // tuple of default values of the last inputs
    PyObject* doc = nullptr;
    PyObject* signature = nullptr;  // "(a, b, /, *, out=None)", for inspect and help()
    ~Value() {
      Py_XDECREF(name);
      Py_XDECREF(defaults);
      Py_XDECREF(doc);
      Py_XDECREF(signature);
    }
  } value;
};

// Runs an elementwise op on arrays and numbers that broadcast. `out`: nullptr, or an array to write to.
// `compute`: the type to compute in, if the inputs do not determine it. If `strangers_refuse` is false, an
// operand that is neither an array nor a number gives NotImplemented instead of TypeError.
PyObject* CallMap(const OpObject::Value& op, std::span<PyObject* const> inputs, PyObject* out,
                  std::optional<DType> compute, bool strangers_refuse);
// A reduction over `dims` (one bit for each dimension).
struct Reduction {
  unsigned dims = 0;
  bool keepdims = false;
  std::optional<DType> dtype;
  std::optional<double> attribute;
};
PyObject* CallReduce(const OpObject::Value& op, const ArrayView& in, const Reduction& how);

// Sends a command to the queue of an array's device, with the lock released. Returns false with the exception
// set.
bool Execute(const ArrayView& on, const OpCall& call);

// xpud._xpud.execute(op name, outputs, inputs, attributes, compute type or None): runs any row as the op
// table describes it. Inputs are arrays, numbers or None.
PyObject* ExecuteRow(PyObject* module, PyObject* args);
PyObject* InferRow(PyObject* module, PyObject* args);

// A number that is sent in the command, and its kind. Returns nullopt, possibly with an exception set, if the
// object is not a number.
struct PythonNumber {
  Kind kind;
  ops::Number value;
};
std::optional<PythonNumber> NumberFrom(PyObject* object);

// Adds the type Op to the module.
bool AddOps(PyObject* module);
// A new Op.
PyObject* MakeOp(const ops::Row& row);
// xpud._xpud.rows(): returns the table, one dict per row; "op" is an Op for elementwise ops and reductions,
// otherwise None.
PyObject* TableRows(PyObject* module, PyObject* none);
// Slots of the array type for + and other operators.
std::vector<PyType_Slot> OperatorSlots();

// The names of a row, without overloads, name spaces and duplicates.
std::vector<std::string> NamesOf(const ops::Row& row);

}  // namespace xpud::python
