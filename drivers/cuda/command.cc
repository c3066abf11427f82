#include "drivers/cuda/command.h"

namespace xpud::drivers::cuda {

ze_result_t EnqueueWait(const Stream& stream, const EventState& event) {
  return stream.device().Check(
      cu.cuStreamWaitValue32(stream.handle(), event.word().address(), 1, CU_STREAM_WAIT_VALUE_EQ));
}

ze_result_t EnqueueStart(const Stream& stream, const EventState& event) {
  if (!event.timestamps()) return ZE_RESULT_SUCCESS;
  return Run(WriteTimestamp{&event.word().start_ns}, stream);
}

ze_result_t EnqueueSignal(const Stream& stream, const EventState& event) {
  if (event.timestamps()) {
    const ze_result_t result = Run(WriteTimestamp{&event.word().end_ns}, stream);
    if (result != ZE_RESULT_SUCCESS) return result;
  }
  return stream.device().Check(
      cu.cuStreamWriteValue32(stream.handle(), event.word().address(), 1, CU_STREAM_WRITE_VALUE_DEFAULT));
}

}  // namespace xpud::drivers::cuda
