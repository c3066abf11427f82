// The object behind every Level Zero handle: it has a kind and belongs to one back end. HandleTable owns it.
// Threads follow Level Zero's rule: several threads may use an object at once only where the API says so, and
// never while it is being destroyed.
#pragma once

#include <cstdint>

namespace xpud::drivers {

enum class Kind : uint32_t {
  kDriver = 1,
  kDevice,
  kContext,
  kCommandQueue,
  kCommandList,
  kFence,
  kEventPool,
  kEvent,
  kModule,
  kModuleBuildLog,
  kKernel,
  kPhysicalMemory,
  kGraph,
  kExecutableGraph,
  kMemoryModule,
  kPowerDomain,
  kTemperatureSensor,
  kFrequencyDomain,
};

class Driver;

class Object {
 public:
  explicit Object(const Driver* driver) : driver_(driver) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  // The back end's driver. One call never mixes objects of two drivers.
  const Driver* driver() const { return driver_; }
  void* handle() const { return handle_; }

 private:
  friend class HandleTable;
  const Driver* driver_;
  void* handle_ = nullptr;
};

}  // namespace xpud::drivers
