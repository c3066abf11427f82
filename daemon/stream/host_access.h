// A device's access to the memory that a client and the daemon share: staging, the completion page, and words
// in which an asynchronous device reports. A synchronous device runs in this process and uses the addresses
// as they are. REQUIRES: the lane's thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/executor/api/device.h"
#include "daemon/stream/in_flight.h"
#include "proto/base/status_macros.h"
#include "proto/transport/transport.h"
#include "proto/wire/commands.h"

namespace xpud::stream {

class HostAccess {
 public:
  static absl::StatusOr<HostAccess> Create(executor::Device& device, transport::ServerTransport& transport) {
    HostAccess access;
    if (device.properties().synchronous) return access;
    ASSIGN_OR_RETURN(access.staging_, device.Import(transport.staging()));
    ASSIGN_OR_RETURN(access.completion_, device.Import(transport.completion_memory()));
    ASSIGN_OR_RETURN(access.words_, device.AllocateHost(sizeof(InFlight::Words) * wire::kMaxQueues));
    return access;
  }

  // The device's addresses for addresses of this process, in staging and on the completion page.
  std::byte* InStaging(std::byte* address) const { return OnDevice(staging_, address); }
  uint64_t* OnCompletionPage(uint64_t* word) const { return OnDevice(completion_, word); }
  // The words of a queue. REQUIRES: an asynchronous device.
  InFlight::Words* Words(uint32_t queue) const {
    return reinterpret_cast<InFlight::Words*>(words_->address()) + queue;
  }
  InFlight::Words* OnDevice(InFlight::Words* words) const { return OnDevice(words_, words); }

 private:
  template <typename T>
  static T* OnDevice(const std::unique_ptr<executor::HostMemory>& memory, T* address) {
    return memory == nullptr ? address : memory->OnDevice(address);
  }

  std::unique_ptr<executor::HostMemory> staging_, completion_, words_;
};

}  // namespace xpud::stream
