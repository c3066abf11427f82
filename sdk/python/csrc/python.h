// CPython's stable ABI as of 3.9, so that one binary serves every later Python. Functions here follow its
// convention: they return nullptr (or -1) with the exception set. REQUIRES: the interpreter lock.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x03090000
#include <Python.h>

#include <utility>

namespace xpud::python {

// Owns one reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  ~Ref() { Py_XDECREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline PyObject* NewRef(PyObject* object) {
  Py_INCREF(object);
  return object;
}

// Releases the interpreter lock while it lives, for calls that may wait.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() { PyEval_RestoreThread(state_); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

// Creates an object of a heap type and constructs its C++ part, which Destroy destructs.
template <typename Object>
Object* Create(PyTypeObject* type) {
  PyObject* made = PyType_GenericAlloc(type, 0);
  if (made != nullptr) new (&reinterpret_cast<Object*>(made)->value) decltype(Object::value)();
  return reinterpret_cast<Object*>(made);
}

// tp_dealloc of such a type.
template <typename Object>
void Destroy(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<Object*>(self)->value.~decltype(Object::value)();
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

}  // namespace xpud::python
