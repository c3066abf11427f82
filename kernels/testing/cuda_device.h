// The first NVIDIA GPU of this machine, for tests and benchmarks: libcuda by dlopen, one context, one stream.
// One instance in a process. Used by one thread, except for Assemble, which is thread-safe.
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
  // Returns NotFound with the reason if there is no library or no device.
  static absl::StatusOr<CudaDevice*> Get();

  // For example "sm_90".
  const std::string& processor() const { return processor_; }
  int multiprocessors() const { return multiprocessors_; }

  void* Allocate(size_t bytes);
  void Free(void* memory);
  void Fill(void* memory, unsigned char value, size_t bytes);
  void CopyIn(void* to, const void* from, size_t bytes);
  void CopyOut(void* to, const void* from, size_t bytes);
  // Returns the CUfunction of a kernel. Modules are loaded at first use and kept.
  void* Load(const Kernel& kernel);
  // Queues a launch of a function from Load.
  void Launch(void* function, const xpud::kernels::Launch& launch);
  void Launch(const LaunchList& launches);
  void Synchronize();
  // Makes the context current for this thread. Get does so for the thread that calls it first.
  void MakeCurrent();
  // Returns the GPU time, in milliseconds, of the work that `enqueue` queues; the best of five. It is
  // replayed as a graph, so that the host's speed does not count.
  float Time(absl::FunctionRef<void()> enqueue);
  // The same for one list, measured over `times` of them in turn.
  float Time(std::span<const LaunchList> launches, int times);

  void* context() const { return context_; }
  void* stream() const { return stream_; }

  // Returns a cubin for this device.
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
  // Shared memory of a group in addition to what the code declares: see drivers/cuda/README.md.
  std::map<const void*, unsigned> local_bytes_;  // by function
  // By content, because libraries come and go, and their kernels' addresses with them.
  std::map<std::string, void*> modules_;
  std::map<std::string, void*> functions_;
};

}  // namespace xpud::kernels
