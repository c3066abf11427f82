// Devices with a planner of attention, and random operands, for the tests of attention.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/library/planners.h"
#include "kernels/library/simd/simd.h"
#include "kernels/library/testing/cuda_device.h"
#include "kernels/library/testing/emulated_pairs.h"
#include "kernels/library/testing/host_device.h"
#include "kernels/library/testing/host_tensor.h"

namespace xpud::kernels::testing {

// kHostInPairs: bf16 as on a CPU that multiplies it.
enum class On { kHost, kGpu, kGpuAsOlder, kHostInPairs };

// The functions for kHostInPairs.
inline const simd::Functions& EmulatedPairs() {
  static const simd::Functions functions = [] {
    simd::Functions all = simd::baseline::kFunctions;
    all.isa = "emulated";
    all.attention_bf16 = simd::emulated::kAttention;
    return all;
  }();
  return functions;
}

// Weights are rounded to 16 bits before they multiply v.
inline bool RoundsWeights(bool on_gpu, ops::DType type) {
  return on_gpu ? ops::SizeOf(type) == 2 : simd::Best().AttentionOf(type).in_pairs;
}

// A device with its planner.
struct AttentionMachine {
  // The planner's number of multiprocessors: few, so that small problems count as large.
  static constexpr int kMultiprocessors = 32;

  explicit AttentionMachine(int workers)
      : device(std::make_unique<HostDevice>(workers)), planner(CreateHostAttention(*device, workers)) {}
  AttentionMachine(std::unique_ptr<CudaDevice> gpu, const std::string& processor)
      : device(std::move(gpu)),
        planner(CreateGpuAttention(*device, processor, kMultiprocessors)),
        on_gpu(true) {}

  // Returns the GPU, with all of its features or as an older one, or the reason why there is none. It lives
  // as long as the process, so that modules are loaded once.
  static absl::StatusOr<AttentionMachine*> Gpu(bool older) {
    static const absl::StatusOr<AttentionMachine*> itself = OpenGpu(false), as_older = OpenGpu(true);
    return older ? as_older : itself;
  }
  static absl::StatusOr<AttentionMachine*> OpenGpu(bool older) {
    auto made = CudaDevice::Create();
    if (!made.ok()) return made.status();
    const std::string processor = older ? "sm_80" : (*made)->processor();
    return new AttentionMachine(*std::move(made), processor);
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<Planner> planner;
  bool on_gpu = false;
};

template <typename Random>
HostTensor RandomLayout(Random& random, ops::DType type, std::vector<int64_t> sizes) {
  std::vector<int> order = {0, 1, 2, 3};
  if (random() % 2) order = {0, 2, 1, 3};
  if (random() % 5 == 0) std::shuffle(order.begin(), order.end(), random);
  return HostTensor::Laid(type, std::move(sizes), order, random() % 3 == 0 ? random() % 9 : 0);
}

template <typename Random>
HostTensor RandomMask(Random& random, ops::DType type, const std::vector<int64_t>& sizes) {
  const ops::DType mask_type = random() % 2 ? ops::DType::kBool : type;
  HostTensor mask = HostTensor::Dense(mask_type, sizes);
  std::vector<int64_t> strides(mask.shape().strides.begin(), mask.shape().strides.begin() + 4);
  for (int d = 0; d < 3; ++d)
    if (random() % 2) strides[d] = 0;
  HostTensor broadcast(mask_type, sizes, strides);
  broadcast.Fill(random);
  if (mask_type != ops::DType::kBool)
    broadcast.ForEach([&](const auto& index) {
      if (random() % 4 == 0) broadcast.Set(index, -INFINITY);
    });
  return broadcast;
}

}  // namespace xpud::kernels::testing
