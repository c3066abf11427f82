// The operands of a call, copied to a GPU: TestTensors with their margins, so that writes outside are seen,
// in memory that overlaps where theirs does. Lives as long as the call. One thread.
#pragma once

#include <vector>

#include "kernels/api/planner.h"
#include "kernels/testing/cuda_device.h"

namespace xpud::kernels {

class GpuMemory {
 public:
  // `call`'s operands are memory of TestTensors; its error word is any.
  GpuMemory(CudaDevice& device, const OpCall& call);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // The call with its pointers replaced.
  const OpCall& call() const { return call_; }
  // To the host's tensors and error word.
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
