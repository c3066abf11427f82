// Commands that a queue recorded, which can be appended to it as one command any number of times. The device
// must outlive it. REQUIRES: the thread of its queue.
#pragma once

#include <utility>

#include "proto/base/ze_ext.h"

namespace xpud::executor {

class RecordedCommands {
 public:
  RecordedCommands() = default;
  RecordedCommands(RecordedCommands&& other) noexcept { *this = std::move(other); }
  RecordedCommands& operator=(RecordedCommands&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  ~RecordedCommands() {
    if (handle_ != nullptr) destroy_(handle_);
  }

  bool empty() const { return handle_ == nullptr; }

 private:
  friend class LevelZeroQueue;
  RecordedCommands(xpud_executable_graph_handle_t handle, xpud_pfnExecutableGraphDestroy_t destroy)
      : handle_(handle), destroy_(destroy) {}

  xpud_executable_graph_handle_t handle_ = nullptr;
  xpud_pfnExecutableGraphDestroy_t destroy_ = nullptr;
};

}  // namespace xpud::executor
