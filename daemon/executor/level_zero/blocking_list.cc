#include "daemon/executor/level_zero/blocking_list.h"

#include "daemon/executor/level_zero/ze_status.h"

namespace xpud::executor {

absl::StatusOr<std::unique_ptr<BlockingList>> BlockingList::Create(ze_context_handle_t context,
                                                                   ze_device_handle_t device) {
  ze_command_queue_desc_t desc = {};
  desc.stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC;
  desc.mode = ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
  ze_command_list_handle_t list;
  RETURN_IF_ZE_ERROR(zeCommandListCreateImmediate(context, device, &desc, &list));
  return std::unique_ptr<BlockingList>(new BlockingList(list));
}

BlockingList::~BlockingList() { zeCommandListDestroy(list_); }

absl::Status BlockingList::Copy(void* target, const void* source, uint64_t bytes) {
  RETURN_IF_ZE_ERROR(zeCommandListAppendMemoryCopy(list_, target, source, bytes, nullptr, 0, nullptr));
  return absl::OkStatus();
}

absl::Status BlockingList::Clear(void* target, uint64_t bytes) {
  const uint8_t zero = 0;
  RETURN_IF_ZE_ERROR(
      zeCommandListAppendMemoryFill(list_, target, &zero, sizeof(zero), bytes, nullptr, 0, nullptr));
  return absl::OkStatus();
}

}  // namespace xpud::executor
