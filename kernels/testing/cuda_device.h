// The first NVIDIA GPU of this machine, for tests and benchmarks: libcuda by dlopen, one context, one stream.
// A process has one. One thread, but for Assemble, which any thread may call.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/api/planner.h"

namespace xpud::kernels {

class CudaDevice {
 public:
  // NotFound says why there is none: no library, no device.
  static absl::StatusOr<CudaDevice*> Get();

  // As "sm_90".
  const std::string& processor() const { return processor_; }
  int multiprocessors() const { return multiprocessors_; }

  void* Allocate(size_t bytes);
  void Free(void* memory);
  void Fill(void* memory, unsigned char value, size_t bytes);
  void CopyIn(void* to, const void* from, size_t bytes);
  void CopyOut(void* to, const void* from, size_t bytes);
  // The CUfunction of a kernel; modules are loaded on first use and kept.
  void* Load(const Kernel& kernel);
  // Queues a launch of what Load gave.
  void Launch(void* function, const xpud::kernels::Launch& launch);
  void Launch(const LaunchList& launches);
  void Synchronize();
  // Milliseconds of GPU time of what `enqueue` queues, replayed as a graph, so that the host's speed does not
  // count; the best of five.
  float Time(absl::FunctionRef<void()> enqueue);
  // Of one list, measured over `times` of them in turn.
  float Time(std::span<const LaunchList> launches, int times);

  void* context() const { return context_; }
  void* stream() const { return stream_; }

  // A cubin for this device.
  absl::StatusOr<std::string> Assemble(const std::string& ptx);

 private:
  struct Api;
  CudaDevice() = default;
  absl::Status Open();

  std::unique_ptr<Api> api_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  std::string processor_;
  int multiprocessors_ = 0;
  // Of a group, beside what the code declares: see drivers/cuda/README.md.
  std::map<const void*, unsigned> local_bytes_;  // by function
  // By content: libraries come and go, and so do their kernels' addresses.
  std::map<std::string, void*> modules_;
  std::map<std::string, void*> functions_;
};

}  // namespace xpud::kernels
