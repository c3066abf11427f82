// What the daemon keeps for one device, shared by all sessions. REQUIRES: the lane's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "daemon/executor/api/device.h"
#include "daemon/executor/api/device_queue.h"
#include "daemon/memory/peer_maps.h"
#include "daemon/memory/pool.h"
#include "daemon/memory/shared_memory.h"
#include "daemon/stream/device_time.h"
#include "daemon/stream/merger.h"
#include "daemon/stream/prediction.h"
#include "kernels/dispatch/kernel_library.h"

namespace xpud::stream {

struct DeviceState {
  std::unique_ptr<executor::Device> device;
  std::unique_ptr<memory::Pool> pool;
  std::unique_ptr<memory::SharedMemory> shared;  // of `pool`
  std::unique_ptr<memory::PeerMaps> peers;       // of `device`
  // Sets these four. `index`: the device's number.
  // `moves`: how its memory may leave it.
  void Use(std::unique_ptr<executor::Device> used, uint32_t index, memory::Residency::Options moves = {}) {
    device = std::move(used);
    pool = std::make_unique<memory::Pool>(*device, index, std::move(moves));
    shared = std::make_unique<memory::SharedMemory>(*pool);
    peers = std::make_unique<memory::PeerMaps>(*device);
  }
  std::unique_ptr<kernels::KernelLibrary> library;
  std::unique_ptr<Merger> merger;  // of `pool`; null: nothing is merged
  DeviceTime time;
  Slowness usual;             // of all sessions; see Prediction
  uint64_t in_flight_ns = 0;  // of all sessions; see DeviceWork
  // Of the work that ran without other sessions': how long it took, and by how much the predictions were
  // wrong.
  uint64_t predicted_took_ns = 0, prediction_error_ns = 0;
  // Identifies the last contents that a buffer got; see memory::Allocation::content.
  uint64_t last_content = 0;
  // Whether the lane has others to serve than the session that runs. Asked while a long op runs.
  std::function<bool()> is_wanted = [] { return true; };
  // Counters since the daemon started.
  uint64_t commands = 0;
  uint64_t launches = 0;
  uint64_t peer_bytes = 0;  // copied from other devices, without the host
};

}  // namespace xpud::stream
