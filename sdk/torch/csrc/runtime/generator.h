// The random state of a device: a seed and an offset of Philox4x32-10. The device computes the numbers; the
// client keeps only the position in the sequence. REQUIRES: callers hold the generator's mutex_.
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
  // The state is 16 bytes: seed, offset.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Consumes `counters` Philox counters and returns the offset of the first.
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

// -1 means the current device. Does not connect. Thread-safe.
const at::Generator& DefaultGenerator(c10::DeviceIndex device);
at::Generator NewGenerator(c10::DeviceIndex device);

// The seed and offset that a random op needs. NextPhilox consumes `counters` counters of `generator`, or of
// the device's default one if that is absent.
struct PhiloxState {
  int64_t seed;
  int64_t offset;
};
// Returns how many 32-bit words a uniform number of the op table consumes: f64 uses 53 bits, f32 24.
inline uint64_t WordsOf(ops::DType compute) { return compute == ops::DType::kFloat64 ? 2 : 1; }
PhiloxState NextPhilox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                       uint64_t counters);

}  // namespace xpud::shim
