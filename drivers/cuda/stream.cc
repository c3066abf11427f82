#include "drivers/cuda/stream.h"

#include "drivers/cuda/wait.h"

namespace xpud::drivers::cuda {

ze_result_t Stream::Create(CudaDevice& device, ze_command_queue_priority_t priority,
                           std::shared_ptr<Stream>& stream) {
  stream.reset(new Stream(device));
  device.MakeCurrent();
  return device.Check(cu.cuStreamCreateWithPriority(&stream->handle_, CU_STREAM_NON_BLOCKING,
                                                    device.StreamPriority(priority)));
}

// Does not wait: CUDA finishes what was enqueued.
Stream::~Stream() {
  if (handle_ == nullptr) return;
  device_.MakeCurrent();
  static_cast<void>(device_.Check(cu.cuStreamDestroy(handle_)));
}

ze_result_t Stream::BeginCapture() {
  if (capturing()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  device_.MakeCurrent();
  capturing_.store(true);
  const ze_result_t result = device_.Check(cu.cuStreamBeginCapture(handle_, CU_STREAM_CAPTURE_MODE_RELAXED));
  if (result != ZE_RESULT_SUCCESS) capturing_.store(false);
  return result;
}

ze_result_t Stream::EndCapture(CUgraph& graph) {
  if (!capturing()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  device_.MakeCurrent();
  const ze_result_t result = device_.Check(cu.cuStreamEndCapture(handle_, &graph));
  capturing_.store(false);
  return result == ZE_RESULT_SUCCESS && graph == nullptr ? ZE_RESULT_ERROR_UNKNOWN : result;
}

ze_result_t Stream::CountCaptured(uint32_t& count) const {
  if (!capturing()) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  device_.MakeCurrent();
  CUstreamCaptureStatus status{};
  CUgraph graph = nullptr;
  size_t nodes = 0;
  ze_result_t result =
      device_.Check(cu.cuStreamGetCaptureInfo(handle_, &status, nullptr, &graph, nullptr, nullptr));
  if (result == ZE_RESULT_SUCCESS) result = device_.Check(cu.cuGraphGetNodes(graph, nullptr, &nodes));
  count = static_cast<uint32_t>(nodes);
  return result;
}

ze_result_t Stream::Wait(uint64_t timeout_ns) const {
  return WaitUntil(timeout_ns, [&] { return Query(); });
}

}  // namespace xpud::drivers::cuda
