// Implements c10's interface to devices, streams and events.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "sdk/torch/csrc/runtime/errors.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {
namespace {

const Queue& QueueOf(const c10::Stream& stream) {
  return Runtime::Get().queue(stream.device_index() < 0 ? Runtime::CurrentDevice() : stream.device_index(),
                              stream.id());
}

c10::Device DeviceAt(int index) { return c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(index)); }

bool IsComplete(const absl::StatusOr<bool>& query) {
  ThrowIfError(query.status());
  return *query;
}

int IndexOf(c10::Device device) { return device.has_index() ? device.index() : Runtime::CurrentDevice(); }

class DeviceGuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDeviceType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    if (device.has_index() && device.index() != old.index()) setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return DeviceAt(Runtime::CurrentDevice()); }
  void setDevice(c10::Device device) const override {
    if (!device.has_index()) return;
    const int count = Runtime::Get().device_count();
    TORCH_CHECK(device.index() >= 0 && device.index() < count,
                "The device index is out of range. It must be in [0, ", count, "), but got ",
                static_cast<int>(device.index()), ".");
    Runtime::SetCurrentDevice(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index() && device.index() >= 0) Runtime::SetCurrentDevice(device.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(Runtime::DeviceCountOrZero());
  }

  c10::Stream getStream(c10::Device device) const override {
    return StreamAt(device, Runtime::CurrentStream(IndexOf(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return StreamAt(device, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return Runtime::Get().PooledStream(IndexOf(device), high_priority);
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return Runtime::Get().NewStream(IndexOf(device), priority);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream old = getStream(stream.device());
    Runtime::SetCurrentStream(IndexOf(stream.device()), stream.id());
    return old;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Runtime::Get().is_null() || IsComplete(QueueOf(stream).Query());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (Runtime::Get().is_null()) return;
    const WaitScope scope;
    ThrowIfError(QueueOf(stream).Synchronize());
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    Runtime::Get().Synchronize(index < 0 ? Runtime::CurrentDevice() : index);
  }

  // Events are xpud::Event objects on the heap, created by the first record.
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag flag) const override {
    if (*event == nullptr) *event = new Event;
    if (Runtime::Get().is_null()) return;
    auto recorded = QueueOf(stream).Record(flag == c10::EventFlag::BACKEND_DEFAULT);
    ThrowIfError(recorded.status());
    *static_cast<Event*>(*event) = *std::move(recorded);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr || Runtime::Get().is_null()) return;
    ThrowIfError(QueueOf(stream).Wait(*static_cast<Event*>(event)));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || IsComplete(static_cast<Event*>(event)->Query());
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    const WaitScope scope;
    ThrowIfError(static_cast<Event*>(event)->Synchronize());
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    if (Runtime::Get().is_null()) return 0;
    auto nanoseconds = static_cast<Event*>(end)->ElapsedNanoseconds(*static_cast<Event*>(start));
    ThrowIfError(nanoseconds.status());
    return static_cast<double>(*nanoseconds) * 1e-6;
  }

 private:
  static c10::Stream StreamAt(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, DeviceAt(IndexOf(device)), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuardImpl);

}  // namespace
}  // namespace xpud::shim
