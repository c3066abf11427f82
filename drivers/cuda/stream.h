// A CUstream that belongs to an immediate list or a queue, and waiting for it. Shared with the context, which
// asks all of them before it gives back deferred memory. Any thread.
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
  // Between the two, what is enqueued is kept, and nothing else may be asked of CUDA's stream.
  ze_result_t BeginCapture();
  ze_result_t EndCapture(CUgraph& graph);
  bool capturing() const { return capturing_.load(std::memory_order_relaxed); }
  // SUCCESS when all that was enqueued is done, NOT_READY, or what became of the device.
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
  std::atomic<bool> capturing_{false};  // set by the thread that appends, while others may ask
};

}  // namespace xpud::drivers::cuda
