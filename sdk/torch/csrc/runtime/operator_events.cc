// torch.autograd.profiler.profile(use_device="xpud"), PyTorch's older profiler: records an event of the
// current stream before and after each operator. Thread-safe.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "proto/base/clock.h"
#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {
namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

c10::Event& EventOf(const ProfilerVoidEventStub& stub) { return *static_cast<c10::Event*>(stub.get()); }

class OperatorEvents final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    const c10::Stream stream = guard_.getStream(guard_.getDevice());
    auto recorded = std::make_shared<c10::Event>(kDeviceType, c10::EventFlag::BACKEND_DEFAULT);
    recorded->record(stream);
    if (device != nullptr) *device = stream.device_index();
    if (cpu_ns != nullptr) *cpu_ns = static_cast<int64_t>(NowNs());
    *event = std::move(recorded);
  }
  // Returns microseconds. Waits for both events.
  float elapsed(const ProfilerVoidEventStub* begin, const ProfilerVoidEventStub* end) const override {
    EventOf(*begin).synchronize();
    EventOf(*end).synchronize();
    return static_cast<float>(EventOf(*begin).elapsedTime(EventOf(*end)) * 1e3);
  }
  // Ranges are those of torch.xpud.range_push.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> operation) const override {
    const c10::DeviceIndex current = guard_.getDevice().index();
    for (int device = 0; device < Runtime::DeviceCountOrZero(); ++device) {
      guard_.setDevice({kDeviceType, static_cast<c10::DeviceIndex>(device)});
      operation(device);
    }
    guard_.setDevice({kDeviceType, current});
  }
  void synchronize() const override { guard_.synchronizeDevice(guard_.getDevice().index()); }

 private:
  const c10::impl::VirtualGuardImpl guard_{kDeviceType};
};

[[maybe_unused]] const bool registered = [] {
  torch::profiler::impl::registerPrivateUse1Methods(new OperatorEvents);
  return true;
}();

}  // namespace
}  // namespace xpud::shim
