// Other devices' chunks that a device has mapped, so that its copies read them. A chunk is mapped by the
// first copy and stays until its memory ends or leaves its device. REQUIRES: the lane's thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/memory/exported_memory.h"
#include "proto/base/mutex.h"

namespace xpud::memory {

class PeerMaps {
 public:
  explicit PeerMaps(executor::Device& device) : device_(device) {}
  ~PeerMaps();
  PeerMaps(const PeerMaps&) = delete;
  PeerMaps& operator=(const PeerMaps&) = delete;

  // `wake` is called on any thread when Poll has something to do.
  void SetWake(std::function<void()> wake);
  // Returns the address, on this device, of the memory's first byte. It is valid until the memory ends.
  // Returns as Device::MapPeer, and FailedPrecondition for memory that has ended.
  absl::StatusOr<const std::byte*> Map(const std::shared_ptr<ExportedMemory>& memory);
  // Gives up what has ended. Call often.
  void Poll();
  size_t size() const { return maps_.size(); }

 private:
  // What the other lanes reach, also after the end of this object.
  struct Notice {
    std::atomic<bool> any_ended{false};
    Mutex mutex;
    std::function<void()> wake ABSL_GUARDED_BY(mutex);
  };
  struct Mapped {
    std::shared_ptr<ExportedMemory> memory;
    std::unique_ptr<executor::Chunk> here;
  };

  executor::Device& device_;
  const std::shared_ptr<Notice> notice_ = std::make_shared<Notice>();
  std::map<const ExportedMemory*, Mapped> maps_;
};

}  // namespace xpud::memory
