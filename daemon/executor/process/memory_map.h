// The memory that every executor of a device must have, at the same addresses: chunks of device memory, the
// daemon's host memory, and what clients share. MemoryHolder knows what one of them has. The next executor
// gets what the lost one had. Owned by ProcessDevice. REQUIRES: the lane's thread, unless a function says
// otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/executor/api/address_space.h"
#include "daemon/executor/api/background.h"
#include "daemon/executor/api/device.h"
#include "daemon/executor/process/shared_executor.h"
#include "proto/base/unique_fd.h"

namespace xpud::executor::process {

class MemoryHolder;

class MemoryMap {
 public:
  struct Part {
    enum class Kind { kChunk, kHost, kClient };
    uint64_t bytes = 0;
    std::shared_ptr<UniqueFd> fd;  // null: a chunk that is away, of which executors keep the addresses
    Kind kind = Kind::kChunk;
    uint64_t owner = 0;  // session that shares a kClient
    bool operator==(const Part&) const = default;
  };
  using Parts = std::map<uint64_t, Part>;  // by address

  // `device`: the daemon's number for it. `wake` is called on any thread when FinishLater has something to
  // do.
  static absl::StatusOr<std::unique_ptr<MemoryMap>> Create(uint32_t device, std::function<void()> wake);
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;

  // For MemoryHolder. The first one is the executor that allocates; all get everything.
  void AddHolder(MemoryHolder& holder) { holders_.push_back(&holder); }
  void RemoveHolder(MemoryHolder& holder) { std::erase(holders_, &holder); }
  // Runs slow work, and then a continuation on the lane's thread.
  void RunLater(std::function<void()> work, std::function<void()> then) {
    if (background_ != nullptr) background_->Run(std::move(work), std::move(then));
  }
  void FinishLater() {
    if (background_ != nullptr) background_->FinishDone();
  }
  // The device ends: waits for what runs, and runs nothing more. REQUIRES: executors give no answers any
  // more.
  void Stop() { background_ = nullptr; }
  // What the executor has, or no longer has. Any thread.
  static absl::Status Give(ExecutorProcess& process, uint64_t address, const Part& part);
  static void TakeBack(ExecutorProcess& process, uint64_t address, const Part& part);

  // As executor::Device. The results must end before the map. Chunks are Unavailable without an executor;
  // host memory is not.
  absl::StatusOr<std::unique_ptr<Chunk>> AllocateChunk(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<Chunk>> ReserveChunk(uint64_t bytes);
  // Of another device; executors have it like a chunk of this one.
  absl::StatusOr<std::unique_ptr<Chunk>> MapPeer(const UniqueFd& memory, uint64_t bytes);
  // Returns an fd of the chunk's memory, which must be there.
  absl::StatusOr<UniqueFd> Export(const Chunk& chunk) const;
  absl::StatusOr<std::unique_ptr<HostMemory>> AllocateHost(uint64_t bytes);
  absl::StatusOr<std::unique_ptr<HostMemory>> Import(const transport::SharedBytes& memory);
  void StartImport(const transport::SharedBytes& memory, uint64_t owner, Device::ImportDone done);

  const Parts& parts() const { return parts_; }
  // For the moves of chunks. What holds each executor, the first one allocates; those that are present; and
  // the memory of a chunk, null: it is away.
  std::vector<SharedExecutor*> Executors() const;
  std::vector<Process> Present() const;
  std::shared_ptr<UniqueFd> MemoryAt(uint64_t chunk) const { return parts_.at(chunk).fd; }
  void SetMemory(uint64_t chunk, std::shared_ptr<UniqueFd> fd) { parts_.at(chunk).fd = std::move(fd); }
  // Gives the next executor all `parts` but clients', which may take long. Returns what it has then. Any
  // thread.
  static absl::StatusOr<Parts> GiveAll(ExecutorProcess& next, const Parts& parts);

 private:
  struct Addresses {
    AddressSpace chunks, hosts, clients;
  };
  // An executor that imports a client's memory. The first one must have it; another one that has no process
  // just now gets it later.
  struct Target {
    MemoryHolder* holder;
    SharedExecutor* executors;
    Process process;  // the last one that was given it
    bool first;
  };
  // The import of a client's memory. Belongs to the background thread until its continuation runs.
  struct ClientImport {
    std::byte* here;
    uint64_t there;
    Part part;
    Device::ImportDone done;
    std::vector<Target> targets;
    absl::Status status;
  };
  class DeviceChunk;
  class SharedHostMemory;

  MemoryMap(Addresses addresses, std::function<void()> wake)
      : addresses_(std::move(addresses)), background_(std::make_unique<Background>(std::move(wake))) {}
  // Chooses addresses for a chunk, and has `place` bring its part to the executors. AlreadyExists: something
  // else is there in one of them.
  absl::StatusOr<std::unique_ptr<Chunk>> AddChunk(
      uint64_t bytes, absl::FunctionRef<absl::StatusOr<Part>(uint64_t address)> place);
  // Gives it to the executors that there are; those that come later get what is in `parts_`.
  absl::Status GiveHolders(uint64_t address, const Part& part, const MemoryHolder* except);
  absl::Status AddHost(uint64_t address, uint64_t bytes, UniqueFd fd);
  void Remove(uint64_t address);
  // Those that must import it, and have not.
  std::vector<Target> TargetsOf(const ClientImport& import) const;
  static absl::Status GiveTarget(Target& target, const ClientImport& import);
  void Import(const std::shared_ptr<ClientImport>& import);
  void FinishImport(const std::shared_ptr<ClientImport>& import);

  Addresses addresses_;
  Parts parts_;
  std::vector<MemoryHolder*> holders_;
  std::unique_ptr<Background>
      background_;  // null: Stop was called; last member, so that it is destroyed first
};

}  // namespace xpud::executor::process
