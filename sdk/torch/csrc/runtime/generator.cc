#include "sdk/torch/csrc/runtime/generator.h"

#include <ATen/ATen.h>
#include <ATen/Utils.h>

#include <array>
#include <cstring>
#include <mutex>

#include "sdk/torch/csrc/runtime/runtime.h"

namespace xpud::shim {

PhiloxGenerator::PhiloxGenerator(c10::DeviceIndex device)
    : GeneratorImpl(c10::Device(kDeviceType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == 16, "RNG state of xpud has 16 bytes, not ", state.numel());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(&seed_, bytes, 8);
  std::memcpy(&offset_, bytes + 8, 8);
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  at::Tensor state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, &seed_, 8);
  std::memcpy(bytes + 8, &offset_, 8);
  return state.getIntrusivePtr();
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& DefaultGenerator(c10::DeviceIndex device) {
  static auto* generators = [] {
    auto* made = new std::array<at::Generator, kMaxDevices>;
    for (int i = 0; i < kMaxDevices; ++i)
      (*made)[i] = at::make_generator<PhiloxGenerator>(static_cast<c10::DeviceIndex>(i));
    return made;
  }();
  return generators->at(device < 0 ? Runtime::CurrentDevice() : device);
}

at::Generator NewGenerator(c10::DeviceIndex device) {
  return at::make_generator<PhiloxGenerator>(
      device < 0 ? static_cast<c10::DeviceIndex>(Runtime::CurrentDevice()) : device);
}

PhiloxState NextPhilox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                       uint64_t counters) {
  const bool given = generator.has_value() && generator->defined();
  at::Generator chosen = given ? *generator : DefaultGenerator(device);
  TORCH_CHECK(chosen.device().type() == kDeviceType,
              "Expected a 'xpud' device type for generator but found '", chosen.device().type(), "'");
  auto* philox = static_cast<PhiloxGenerator*>(chosen.unsafeGetGeneratorImpl());
  std::lock_guard<std::mutex> lock(philox->mutex_);
  return {static_cast<int64_t>(philox->current_seed()), static_cast<int64_t>(philox->Spend(counters))};
}

}  // namespace xpud::shim
