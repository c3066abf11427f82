// xpud._xpud.Op: an elementwise op or a reduction, made from its row of the op table and called as a
// function, and Python's operators on arrays. With the interpreter lock, which is let go while a command is
// sent.
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
    PyObject* name = nullptr;      // ATen's, without overload
    PyObject* defaults = nullptr;  // a tuple: of the last inputs, where callers leave them out
    PyObject* doc = nullptr;
    ~Value() {
      Py_XDECREF(name);
      Py_XDECREF(defaults);
      Py_XDECREF(doc);
    }
  } value;
};

// An elementwise op, on arrays and numbers that broadcast. `out`: nullptr, or an array to write to.
// `compute`: the type to compute in, if the inputs do not say. With `strangers_refuse` false, an operand that
// is neither array nor number gives NotImplemented instead of TypeError.
PyObject* CallMap(const OpObject::Value& op, std::span<PyObject* const> inputs, PyObject* out,
                  std::optional<DType> compute, bool strangers_refuse);
// A reduction over `dims` (a bit each).
struct Reduction {
  unsigned dims = 0;
  bool keepdims = false;
  std::optional<DType> dtype;
  std::optional<double> attribute;
};
PyObject* CallReduce(const OpObject::Value& op, const ArrayView& in, const Reduction& how);

// Sends a command to the queue of an array's device, with the lock let go. False with the exception set.
bool Execute(const ArrayView& on, const OpCall& call);

// xpud._xpud.execute(op name, outputs, inputs, attributes, compute type or None): any row, as the op table
// describes it. Inputs are arrays, numbers or None.
PyObject* ExecuteRow(PyObject* module, PyObject* args);
PyObject* InferRow(PyObject* module, PyObject* args);

// A number that travels in the command, and its kind; nothing, perhaps with an exception set, for what is no
// number.
struct PythonNumber {
  Kind kind;
  ops::Number value;
};
std::optional<PythonNumber> NumberFrom(PyObject* object);

// Puts the type Op into the module.
bool AddOps(PyObject* module);
// A new Op.
PyObject* MakeOp(const ops::Row& row);
// xpud._xpud.rows(): the table, a dict a row; "op" is an Op where it is elementwise or a reduction, else
// None.
PyObject* TableRows(PyObject* module, PyObject* none);
// Slots of the array type: + and its like.
std::vector<PyType_Slot> OperatorSlots();

// The names that a row serves, without overloads, name spaces and repetition.
std::vector<std::string> NamesOf(const ops::Row& row);

}  // namespace xpud::python
