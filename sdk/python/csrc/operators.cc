// Python's operators on arrays: rows of the op table behind slots.
#include <array>
#include <string_view>

#include "sdk/python/csrc/op.h"

namespace xpud::python {

namespace {

// Returns the op of an operator. Never destroyed.
const OpObject::Value* Behind(std::string_view aten) {
  return &reinterpret_cast<OpObject*>(MakeOp(ops::RowOf(aten)))->value;
}

template <const char* kAten, bool kWithOne>
PyObject* Binary(PyObject* a, PyObject* b) {
  static const OpObject::Value* const op = Behind(kAten);
  static PyObject* const one = PyLong_FromLong(1);  // add and sub: times 1
  PyObject* const inputs[] = {a, b, one};
  return CallMap(*op, {inputs, kWithOne ? size_t{3} : size_t{2}}, nullptr, std::nullopt,
                 /*strangers_refuse=*/false);
}

template <const char* kAten, bool kWithOne>
PyObject* InPlace(PyObject* a, PyObject* b) {
  static const OpObject::Value* const op = Behind(kAten);
  static PyObject* const one = PyLong_FromLong(1);
  PyObject* const inputs[] = {a, b, one};
  return CallMap(*op, {inputs, kWithOne ? size_t{3} : size_t{2}}, a, std::nullopt,
                 /*strangers_refuse=*/false);
}

template <const char* kAten>
PyObject* Unary(PyObject* a) {
  static const OpObject::Value* const op = Behind(kAten);
  return CallMap(*op, {&a, 1}, nullptr, std::nullopt, /*strangers_refuse=*/true);
}

template <const char* kAten>
PyObject* Power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return Binary<kAten, false>(a, b);
}
template <const char* kAten>
PyObject* InPlacePower(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return InPlace<kAten, false>(a, b);
}

constexpr char kAdd[] = "add.Tensor", kSub[] = "sub.Tensor", kMul[] = "mul.Tensor", kDiv[] = "div.Tensor",
               kFloorDiv[] = "floor_divide", kRemainder[] = "remainder.Tensor", kPow[] = "pow.Tensor_Tensor",
               kAnd[] = "bitwise_and.Tensor", kOr[] = "bitwise_or.Tensor", kXor[] = "bitwise_xor.Tensor",
               kNot[] = "bitwise_not", kNeg[] = "neg", kAbs[] = "abs", kEq[] = "eq.Tensor",
               kNe[] = "ne.Tensor", kLt[] = "lt.Tensor", kLe[] = "le.Tensor", kGt[] = "gt.Tensor",
               kGe[] = "ge.Tensor", kCopy[] = "_copy_from";

PyObject* Compare(PyObject* a, PyObject* b, int operation) {
  constexpr std::array kCompare = {Binary<kLt, false>, Binary<kLe, false>, Binary<kEq, false>,
                                   Binary<kNe, false>, Binary<kGt, false>, Binary<kGe, false>};
  static_assert(Py_LT == 0 && Py_LE == 1 && Py_EQ == 2 && Py_NE == 3 && Py_GT == 4 && Py_GE == 5);
  return kCompare.at(static_cast<size_t>(operation))(a, b);
}

// +a returns a copy.
PyObject* Positive(PyObject* a) {
  static const OpObject::Value* const op = Behind(kCopy);
  Ref out(NewArrayLike(ViewOf(a), ViewOf(a).dtype, ViewOf(a).shape));
  return out ? Ref(CallMap(*op, {&a, 1}, out.get(), std::nullopt, /*strangers_refuse=*/true)).release()
             : nullptr;
}

}  // namespace

std::vector<PyType_Slot> OperatorSlots() {
  const auto slot = [](int number, auto function) {
    return PyType_Slot{number, reinterpret_cast<void*>(function)};
  };
  return {slot(Py_nb_add, Binary<kAdd, true>),
          slot(Py_nb_inplace_add, InPlace<kAdd, true>),
          slot(Py_nb_subtract, Binary<kSub, true>),
          slot(Py_nb_inplace_subtract, InPlace<kSub, true>),
          slot(Py_nb_multiply, Binary<kMul, false>),
          slot(Py_nb_inplace_multiply, InPlace<kMul, false>),
          slot(Py_nb_true_divide, Binary<kDiv, false>),
          slot(Py_nb_inplace_true_divide, InPlace<kDiv, false>),
          slot(Py_nb_floor_divide, Binary<kFloorDiv, false>),
          slot(Py_nb_inplace_floor_divide, InPlace<kFloorDiv, false>),
          slot(Py_nb_remainder, Binary<kRemainder, false>),
          slot(Py_nb_inplace_remainder, InPlace<kRemainder, false>),
          slot(Py_nb_power, Power<kPow>),
          slot(Py_nb_inplace_power, InPlacePower<kPow>),
          slot(Py_nb_and, Binary<kAnd, false>),
          slot(Py_nb_inplace_and, InPlace<kAnd, false>),
          slot(Py_nb_or, Binary<kOr, false>),
          slot(Py_nb_inplace_or, InPlace<kOr, false>),
          slot(Py_nb_xor, Binary<kXor, false>),
          slot(Py_nb_inplace_xor, InPlace<kXor, false>),
          slot(Py_nb_invert, Unary<kNot>),
          slot(Py_nb_negative, Unary<kNeg>),
          slot(Py_nb_absolute, Unary<kAbs>),
          slot(Py_nb_positive, Positive),
          slot(Py_tp_richcompare, Compare)};
}

}  // namespace xpud::python
