// The operands of a call, copied to a GPU: TestTensors with their margins, so that writes outside are
// detected. Memory overlaps as on the host. Lives as long as the call. Used by one thread.
#pragma once

#include <vector>

#include "kernels/api/planner.h"
#include "kernels/testing/cuda_device.h"

namespace xpud::kernels {

class GpuMemory {
 public:
  // `call`'s operands are memory of TestTensors; its error word may be anywhere.
  GpuMemory(CudaDevice& device, const OpCall& call);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // Returns the call with device pointers.
  const OpCall& call() const { return call_; }
  // Copies back to the host's tensors and error word.
  void CopyBack();

 private:
  struct Region {
    std::byte *begin, *end;      // host
    void* allocation = nullptr;  // device
    std::byte* device = nullptr;
  };
  void AddRegion(const Operand& operand);
  void MergeRegions();
  void* Translate(void* host) const;

  CudaDevice& device_;
  std::vector<Region> regions_;
  std::vector<Operand> outputs_, inputs_;
  OpCall call_;
};

}  // namespace xpud::kernels
