// Python's objects for a session and its devices: the bases of xpud.Session and xpud.Device
// (sdk/python/xpud). REQUIRES: the interpreter lock, which also guards their state.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sdk/python/csrc/python.h"
#include "xpud/xpud.h"

namespace xpud::python {

struct SessionState;

// Device memory that arrays view. Listed in its session, so that closing the session frees it.
struct Storage {
  Storage(std::shared_ptr<SessionState> session, uint32_t device, Buffer buffer);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  const std::shared_ptr<SessionState> session;
  const uint32_t device;
  Buffer buffer;
  Storage *previous = nullptr, *next = nullptr;
};

struct SessionState {
  std::unique_ptr<Session> session;  // null once closed
  std::vector<Queue> queues;         // each device's default queue; empty once closed
  Storage* storages = nullptr;
};

struct SessionObject {
  PyObject_HEAD std::shared_ptr<SessionState> value;
};
struct DeviceObject {
  PyObject_HEAD struct Value {
    std::shared_ptr<SessionState> session;
    uint32_t index = 0;
  } value;
};

extern PyTypeObject* session_base;  // _xpud.Session
extern PyTypeObject* device_base;   // _xpud.Device
extern PyTypeObject* device_type;   // xpud.Device: the type of new devices

// Creates the two base types and adds them to the module.
bool AddSessionTypes(PyObject* module);

PyObject* MakeDevice(const std::shared_ptr<SessionState>& session, uint32_t index);
// Returns the object's value, or nullptr with TypeError set if it is not a device.
const DeviceObject::Value* DeviceOf(PyObject* object);
// Returns the queue of a device, or nullptr with the exception set if the session was closed.
const Queue* QueueOf(const SessionState& session, uint32_t device);

// Allocates device memory. Returns null with the exception set.
std::shared_ptr<Storage> Allocate(const std::shared_ptr<SessionState>& session, uint32_t device,
                                  uint64_t bytes);

}  // namespace xpud::python
