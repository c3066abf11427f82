// The memory that every executor of a device must have, at the same addresses: chunks of device memory, the
// daemon's host memory, and what clients share. The next executor gets what the lost one had. Owned by
// ProcessDevice. REQUIRES: the lane's thread, unless a function says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/executor/api/background.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/process/address_space.h"
#include "daemon/executor/process/shared_executor.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor::process {

class MemoryMap {
 public:
  struct Part {
    enum class Kind { kChunk, kHost, kClient };
    uint64_t bytes = 0;
    std::shared_ptr<UniqueFd> fd;
    Kind kind = Kind::kChunk;
    uint64_t owner = 0;  // session that shares a kClient
    bool operator==(const Part&) const = default;
  };
  using Parts = std::map<uint64_t, Part>;  // by address

  // `device`: the daemon's number for it. `executors` outlives the map. `wake` is called on any thread when
  // TakeGiven has something to do.
  static absl::StatusOr<std::unique_ptr<MemoryMap>> Create(uint32_t device, SharedExecutor& executors,
                                                           std::function<void()> wake);
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  // As executor::Device. The results must end before the map. Chunks are Unavailable without an executor;
  // host memory is not.
  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory);
  void StartImport(const transport::SharedBytes& memory, uint64_t owner, Device::ImportDone done);

  // The executor is lost. Changes are for the next one.
  void LoseExecutor() { executor_ = nullptr; }
  const Parts& parts() const { return parts_; }
  // Gives the next executor all `parts` but clients', which may take long. Returns what it has then. Any
  // thread.
  static absl::StatusOr<Parts> GiveAll(ExecutorProcess& next, const Parts& parts);
  // Uses the next executor, which has `had`: applies the changes since, and begins to give it clients'
  // memory.
  absl::Status Adopt(Process next, const Parts& had);
  // Whether the executor has all memory that the session shares.
  bool IsComplete(uint64_t owner) const { return !missing_.contains(owner); }
  // Call often. Returns the sessions all of whose memory the executor has got since the last call, and those
  // for which it failed.
  std::vector<std::pair<uint64_t, absl::Status>> TakeGiven();

 private:
  struct Addresses {
    AddressSpace chunks, hosts, clients;
  };
  // The import of a client's memory. Belongs to the background thread until its continuation runs.
  struct ClientImport {
    std::byte* here;
    uint64_t there;
    Part part;
    Device::ImportDone done;
    Process process;  // the executor that imports it
    absl::Status status;
  };
  class DeviceChunk;
  class SharedHostMemory;

  MemoryMap(Addresses addresses, SharedExecutor& executors, std::function<void()> wake)
      : addresses_(std::move(addresses)), executors_(executors), background_(std::move(wake)) {}
  static absl::Status Give(ExecutorProcess& process, uint64_t address, const Part& part);
  static void TakeBack(ExecutorProcess& process, uint64_t address, const Part& part);
  absl::Status AddHost(uint64_t address, uint64_t bytes, UniqueFd fd);
  void Remove(uint64_t address);
  void Import(const std::shared_ptr<ClientImport>& import);
  void FinishImport(const std::shared_ptr<ClientImport>& import);
  void GiveAgain(uint64_t address, const Part& part);
  void NoteGiven(uint64_t owner, const absl::Status& status);

  Addresses addresses_;
  SharedExecutor& executors_;
  Process executor_;  // null: there is none, and the next one has not taken over
  Parts parts_;
  std::map<uint64_t, size_t> missing_;  // by session: count of its parts that this executor does not have yet
  std::vector<std::pair<uint64_t, absl::Status>> given_;
  Background background_;  // last member, so that it is destroyed first
};

}  // namespace xpud::executor::process
