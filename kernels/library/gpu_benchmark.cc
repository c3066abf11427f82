// GPU times of this library, as functions for a Python process that also has PyTorch (called with ctypes), so
// that both are measured alternately on one GPU in one process. Not installed. Each function returns the
// microseconds of a call, or -1.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <random>

#include "kernels/library/testing/cuda_device.h"

namespace xpud::kernels {
namespace {

using ops::DType;
using testing::CudaDevice;
using testing::HostTensor;

struct Machine {
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<Planner> matmul, attention;
  LaunchList launches;

  static Machine* Get() {
    static Machine machine;
    if (machine.device == nullptr) {
      auto device = CudaDevice::Create(/*misalign=*/false);
      if (!device.ok()) return nullptr;
      machine.device = *std::move(device);
      machine.matmul = CreateCublasltMatmul(
          *machine.device, [](const Launch& launch) { return machine.device->RunHostKernel(launch); });
      const char* const processor = std::getenv("XPUD_BENCH_PROCESSOR");  // to measure an older one's kernels
      machine.attention =
          CreateGpuAttention(*machine.device, processor != nullptr ? processor : machine.device->processor(),
                             machine.device->multiprocessors());
    }
    return &machine;
  }
};

// Plans twice, the second time with known workspace, and times `rounds` launches, or the host's part of
// planning and launching.
double Measure(Machine& machine, Planner& planner, const OpCall& call, int rounds, bool host) {
  for (int warm = 0; warm < 3; ++warm) {
    if (!machine.device->Plan(planner, call, machine.launches).ok()) return -1;
    machine.device->Enqueue(machine.launches);
  }
  machine.device->Wait();
  double time = 0;
  if (host) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) {
      machine.launches.Clear();
      if (!planner
               .Plan(
                   call, [&](size_t) -> absl::StatusOr<void*> { return absl::InternalError("workspace"); },
                   machine.launches)
               .ok())
        return -1;
      machine.device->Enqueue(machine.launches);
    }
    time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  } else {
    time = machine.device->Time([&] {
      for (int i = 0; i < rounds; ++i) machine.device->Enqueue(machine.launches);
    });
  }
  return time / rounds;
}

HostTensor Random(DType type, std::vector<int64_t> sizes, std::vector<int> order) {
  HostTensor tensor = HostTensor::Laid(type, std::move(sizes), std::move(order), 0);
  std::mt19937 random(1);
  std::vector<double> values(1021);
  for (double& value : values) value = std::normal_distribution<double>()(random);
  const size_t size = ops::SizeOf(type), count = tensor.bytes().size() / size;
  for (size_t i = 0; i < count; ++i)
    testing::WriteElement(tensor.bytes().data() + i * size, type, values[(i * 7 + i / 1021) % 1021]);
  return tensor;
}

}  // namespace
}  // namespace xpud::kernels

using namespace xpud::kernels;
using xpud::ops::DType;

#define XPUD_EXPORT extern "C" __attribute__((visibility("default")))

// Computes out[m,n] = a[m,k] w[n,k]^T (+ bias[n]), as torch's linear, or a[m,k] b[k,n].
XPUD_EXPORT double xpud_bench_matmul(int type, int64_t m, int64_t n, int64_t k, int weights, int bias,
                                     int rounds, int host) {
  Machine* const machine = Machine::Get();
  if (machine == nullptr) return -1;
  const DType dtype = static_cast<DType>(type);
  HostTensor a = Random(dtype, {m, k}, {0, 1});
  HostTensor b = Random(dtype, {k, n}, weights ? std::vector<int>{1, 0} : std::vector<int>{0, 1});
  HostTensor c = bias ? Random(dtype, {n}, {0}) : HostTensor(), out = HostTensor::Dense(dtype, {m, n});
  const Operand outputs[] = {machine->device->Place(out)};
  const Operand inputs[] = {machine->device->Place(a), machine->device->Place(b), machine->device->Place(c)};
  const xpud::ops::Number attributes[] = {xpud::ops::Number::Real(1), xpud::ops::Number::Real(1),
                                          xpud::ops::Number::Integer(0)};
  OpCall call;
  call.row = &xpud::ops::RowOf("linear");
  call.compute = dtype;
  call.outputs = outputs;
  call.inputs = inputs;
  call.attributes = attributes;
  const double time = Measure(*machine, *machine->matmul, call, rounds, host != 0);
  machine->device->Run(LaunchList());
  return time;
}

// Gradients of attention; mask: 0 none, 3 causal. `dropout` in percent. Layout as below.
XPUD_EXPORT double xpud_bench_attention_backward(int type, int64_t batch, int64_t heads, int64_t length,
                                                 int64_t depth, int mask, int dropout, int rounds, int host) {
  Machine* const machine = Machine::Get();
  if (machine == nullptr) return -1;
  const DType dtype = static_cast<DType>(type);
  HostTensor q = Random(dtype, {batch, heads, length, depth}, {0, 2, 1, 3});
  HostTensor k = q, v = q, out = q, gradient = q, dq = q, dk = q, dv = q, masks;
  HostTensor logsumexp =
      HostTensor::Dense(dtype == DType::kFloat64 ? dtype : DType::kFloat32, {batch, heads, length});
  std::fill(logsumexp.bytes().begin(), logsumexp.bytes().end(), std::byte{0});
  xpud::kernels::testing::Device& device = *machine->device;
  const Operand outputs[] = {device.Place(dq), device.Place(dk), device.Place(dv)};
  const Operand inputs[] = {device.Place(gradient), device.Place(q),   device.Place(k),
                            device.Place(v),        device.Place(out), device.Place(logsumexp),
                            device.Place(masks)};
  const xpud::ops::Number attributes[] = {xpud::ops::Number::Real(1 / std::sqrt(static_cast<double>(depth))),
                                          xpud::ops::Number::Integer(mask == 3),
                                          xpud::ops::Number::Real(dropout / 100.0),
                                          xpud::ops::Number::Integer(1), xpud::ops::Number::Integer(0)};
  OpCall call;
  call.row = &xpud::ops::RowOf("xpud::attention_backward");
  call.compute = dtype;
  call.outputs = outputs;
  call.inputs = inputs;
  call.attributes = attributes;
  const double time = Measure(*machine, *machine->attention, call, rounds, host != 0);
  device.Run(LaunchList());
  return time;
}

// mask: 0 none, 1 bool by key, 2 added [B,1,queries,keys], 3 causal. Tensors have the layout of a model's
// projections: [B,S,H,D].
XPUD_EXPORT double xpud_bench_attention(int type, int64_t batch, int64_t heads, int64_t queries, int64_t keys,
                                        int64_t depth, int mask, int rounds, int host) {
  Machine* const machine = Machine::Get();
  if (machine == nullptr) return -1;
  const DType dtype = static_cast<DType>(type);
  HostTensor q = Random(dtype, {batch, heads, queries, depth}, {0, 2, 1, 3}), out = q, masks;
  HostTensor k = Random(dtype, {batch, heads, keys, depth}, {0, 2, 1, 3}), v = k;
  if (mask == 1) masks = HostTensor(DType::kBool, {batch, heads, queries, keys}, {keys, 0, 0, 1});
  if (mask == 2) masks = HostTensor(dtype, {batch, heads, queries, keys}, {queries * keys, 0, keys, 1});
  std::fill(masks.bytes().begin(), masks.bytes().end(), static_cast<std::byte>(mask == 1));
  const Operand outputs[] = {machine->device->Place(out)};
  const Operand inputs[] = {machine->device->Place(q), machine->device->Place(k), machine->device->Place(v),
                            machine->device->Place(masks)};
  const xpud::ops::Number attributes[] = {xpud::ops::Number::Real(1 / std::sqrt(static_cast<double>(depth))),
                                          xpud::ops::Number::Integer(mask == 3)};
  OpCall call;
  call.row = &xpud::ops::RowOf("_scaled_dot_product_fused_attention_overrideable");
  call.compute = dtype;
  call.outputs = outputs;
  call.inputs = inputs;
  call.attributes = attributes;
  const double time = Measure(*machine, *machine->attention, call, rounds, host != 0);
  machine->device->Run(LaunchList());
  return time;
}
