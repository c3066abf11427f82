// A Level Zero list whose calls return when the device has done the work. REQUIRES: one thread at a time.
#pragma once

#include <level_zero/ze_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xpud::executor {

class BlockingList {
 public:
  static absl::StatusOr<std::unique_ptr<BlockingList>> Create(ze_context_handle_t context,
                                                              ze_device_handle_t device);
  ~BlockingList();
  BlockingList(const BlockingList&) = delete;
  BlockingList& operator=(const BlockingList&) = delete;

  absl::Status Copy(void* target, const void* source, uint64_t bytes);
  absl::Status Clear(void* target, uint64_t bytes);

 private:
  explicit BlockingList(ze_command_list_handle_t list) : list_(list) {}

  const ze_command_list_handle_t list_;
};

}  // namespace xpud::executor
