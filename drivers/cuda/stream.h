// Owns the CUstream of an immediate list or a queue, and waits for it. Shared with the context, which queries
// all streams before it frees deferred memory. Thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include "drivers/cuda/device.h"
#include "drivers/frontend/timeline.h"

namespace xpud::drivers::cuda {

class Stream final : public Timeline {
 public:
  static ze_result_t Create(CudaDevice& device, ze_command_queue_priority_t priority,
                            std::shared_ptr<Stream>& stream);
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  CudaDevice& device() const { return device_; }
  CUstream handle() const { return handle_; }
  // Between these calls, enqueued work is captured, and no other call may use CUDA's stream.
  ze_result_t BeginCapture();
  ze_result_t EndCapture(CUgraph& graph);
  ze_result_t CountCaptured(uint32_t& count) const;
  bool capturing() const { return capturing_.load(std::memory_order_relaxed); }
  // Returns SUCCESS if all enqueued work is done, NOT_READY, or an error of the device.
  ze_result_t Query() const {
    if (capturing()) return ZE_RESULT_NOT_READY;
    device_.MakeCurrent();
    return device_.Check(cu.cuStreamQuery(handle_));
  }
  ze_result_t Wait(uint64_t timeout_ns) const override;

 private:
  explicit Stream(CudaDevice& device) : device_(device) {}

  CudaDevice& device_;
  CUstream handle_ = nullptr;
  std::atomic<bool> capturing_{false};  // set by the appending thread, read by others
};

}  // namespace xpud::drivers::cuda
