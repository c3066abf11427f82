// The random state of a device: Philox4x32-10, a seed and an offset. Numbers are drawn on the device; what
// the client keeps is which come next. Callers hold the generator's mutex_.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "proto/ops/dtype.h"

namespace xpud::shim {

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(c10::DeviceIndex device);
  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  // 16 bytes: seed, offset.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The offset of the next `counters` Philox counters, which are then spent.
  uint64_t Spend(uint64_t counters) {
    const uint64_t first = offset_;
    offset_ += counters;
    return first;
  }

 private:
  PhiloxGenerator* clone_impl() const override;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

// Of the current device for -1. Made without connecting. Any thread.
const at::Generator& DefaultGenerator(c10::DeviceIndex device);
at::Generator NewGenerator(c10::DeviceIndex device);

// What a random op takes: a seed and `counters` counters of the given generator, or of the device's default
// one.
struct PhiloxState {
  int64_t seed;
  int64_t offset;
};
// The 32-bit words of a uniform number of the op table: 53 bits in f64, 24 in f32.
inline uint64_t WordsOf(ops::DType compute) { return compute == ops::DType::kFloat64 ? 2 : 1; }
PhiloxState NextPhilox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                       uint64_t counters);

}  // namespace xpud::shim
