#include "daemon/executor/process/memory_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "proto/base/descriptor_error.h"
#include "proto/base/mapping.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {

class MemoryMap::DeviceChunk final : public Chunk {
 public:
  DeviceChunk(MemoryMap& map, uint64_t address, uint64_t bytes)
      : Chunk(reinterpret_cast<std::byte*>(address), bytes), map_(map) {}
  ~DeviceChunk() override { map_.Remove(reinterpret_cast<uint64_t>(address())); }

 private:
  MemoryMap& map_;
};

class MemoryMap::SharedHostMemory final : public HostMemory {
 public:
  SharedHostMemory(MemoryMap& map, std::byte* here, uint64_t there, Mapping mapping)
      : HostMemory(here, reinterpret_cast<const std::byte*>(there)),
        map_(map),
        there_(there),
        mapping_(std::move(mapping)) {}
  ~SharedHostMemory() override { map_.Remove(there_); }

 private:
  MemoryMap& map_;
  const uint64_t there_;
  Mapping mapping_;  // empty if another object owns the memory
};

absl::StatusOr<std::unique_ptr<MemoryMap>> MemoryMap::Create(uint32_t device, SharedExecutor& executors,
                                                             std::function<void()> wake) {
  ASSIGN_OR_RETURN(AddressSpace chunks, AddressSpace::ForChunks(device));
  ASSIGN_OR_RETURN(AddressSpace hosts, AddressSpace::ForHostMemory(device));
  ASSIGN_OR_RETURN(AddressSpace clients, AddressSpace::ForClientMemory(device));
  return std::unique_ptr<MemoryMap>(
      new MemoryMap({std::move(chunks), std::move(hosts), std::move(clients)}, executors, std::move(wake)));
}

absl::StatusOr<std::unique_ptr<Chunk>> MemoryMap::AllocateChunk(uint64_t bytes) {
  if (executor_ == nullptr) return absl::UnavailableError("the device's executor is being replaced");
  // CUDA puts memory of its own, such as the stacks of kernels, where a chunk was freed. Such addresses stay
  // taken.
  constexpr int kMaxTries = 64;
  absl::Status status;
  for (int i = 0; i < kMaxTries; ++i) {
    ASSIGN_OR_RETURN(const uint64_t address, addresses_.chunks.Take(bytes));
    auto fd = executor_->Allocate(address, bytes);
    if (fd.ok()) {
      parts_[address] = {bytes, std::make_shared<UniqueFd>(*std::move(fd)), Part::Kind::kChunk};
      return std::make_unique<DeviceChunk>(*this, address, bytes);
    }
    status = fd.status();
    if (absl::IsAlreadyExists(status)) continue;
    addresses_.chunks.Return(address);
    break;
  }
  return status;
}

absl::Status MemoryMap::AddHost(uint64_t address, uint64_t bytes, UniqueFd fd) {
  const Part part = {bytes, std::make_shared<UniqueFd>(std::move(fd)), Part::Kind::kHost};
  // If there is no executor yet, the next one gets the memory when it starts; likewise if this one has just
  // been lost.
  absl::Status given = executor_ != nullptr ? Give(*executor_, address, part) : absl::OkStatus();
  if (!given.ok() && !absl::IsUnavailable(given)) return given;
  parts_[address] = part;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<HostMemory>> MemoryMap::AllocateHost(uint64_t bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("xpud-words", bytes));
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd, bytes, Access::kReadWrite));
  std::byte* const here = mapping.data();
  ASSIGN_OR_RETURN(const uint64_t there, addresses_.hosts.Take(bytes));
  auto memory = std::make_unique<SharedHostMemory>(*this, here, there, std::move(mapping));
  RETURN_IF_ERROR(AddHost(there, bytes, std::move(fd)));
  return memory;
}

absl::StatusOr<std::unique_ptr<HostMemory>> MemoryMap::Import(const transport::SharedBytes& memory) {
  UniqueFd fd(dup(memory.fd));
  if (!fd.valid()) return DescriptorError("dup");
  ASSIGN_OR_RETURN(const uint64_t there, addresses_.hosts.Take(memory.bytes.size()));
  auto imported = std::make_unique<SharedHostMemory>(*this, memory.bytes.data(), there, Mapping());
  RETURN_IF_ERROR(AddHost(there, memory.bytes.size(), std::move(fd)));
  return imported;
}

void MemoryMap::Remove(uint64_t address) {
  const auto found = parts_.find(address);
  if (found != parts_.end()) {
    const Part part = std::move(found->second);
    parts_.erase(found);
    if (executor_ != nullptr && part.kind != Part::Kind::kClient) TakeBack(*executor_, address, part);
    if (executor_ != nullptr && part.kind == Part::Kind::kClient)
      background_.Run([process = executor_, address, part] { TakeBack(*process, address, part); }, [] {});
  }
  addresses_.chunks.Return(address);
  addresses_.hosts.Return(address);
  addresses_.clients.Return(address);
}

absl::Status MemoryMap::Give(ExecutorProcess& process, uint64_t address, const Part& part) {
  switch (part.kind) {
    case Part::Kind::kChunk:
      return process.Import(address, part.bytes, *part.fd);
    case Part::Kind::kHost:
      return process.ImportHost(address, part.bytes, part.fd->get());
    case Part::Kind::kClient:
      return process.ImportSlowly(address, part.bytes, part.fd->get());
  }
  return absl::InternalError("unknown kind of memory");
}

void MemoryMap::TakeBack(ExecutorProcess& process, uint64_t address, const Part& part) {
  switch (part.kind) {
    case Part::Kind::kChunk:
      return process.Free(address);
    case Part::Kind::kHost:
      return process.ReleaseHost(address);
    case Part::Kind::kClient:
      return process.ReleaseSlowly(address);
  }
}

// ---- clients' memory

void MemoryMap::StartImport(const transport::SharedBytes& memory, uint64_t owner, Device::ImportDone done) {
  UniqueFd fd(fcntl(memory.fd, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return done(DescriptorError("fcntl(F_DUPFD_CLOEXEC)"));
  const auto there = addresses_.clients.Take(memory.bytes.size());
  if (!there.ok()) return done(there.status());
  Part part = {memory.bytes.size(), std::make_shared<UniqueFd>(std::move(fd)), Part::Kind::kClient, owner};
  Import(std::make_shared<ClientImport>(
      ClientImport{memory.bytes.data(), *there, std::move(part), std::move(done), nullptr, {}}));
}

void MemoryMap::Import(const std::shared_ptr<ClientImport>& import) {
  background_.Run(
      [this, import] {
        do {
          import->process = executors_.OtherThan(import->process);
          import->status = import->process == nullptr
                               ? absl::UnavailableError("the device's executor is lost")
                               : Give(*import->process, import->there, import->part);
        } while (absl::IsUnavailable(import->status) && import->process != nullptr);
      },
      [this, import] { FinishImport(import); });
}

// Starts over if the executor was replaced meanwhile: its successor was given the memory that was listed
// before.
void MemoryMap::FinishImport(const std::shared_ptr<ClientImport>& import) {
  if (!import->status.ok()) {
    addresses_.clients.Return(import->there);
    return import->done(import->status);
  }
  if (import->process != executor_) return Import(import);
  parts_[import->there] = import->part;
  import->done(std::make_unique<SharedHostMemory>(*this, import->here, import->there, Mapping()));
}

// ---- the next executor

absl::StatusOr<MemoryMap::Parts> MemoryMap::GiveAll(ExecutorProcess& next, const Parts& parts) {
  Parts given;
  for (const auto& [address, part] : parts) {
    if (part.kind == Part::Kind::kClient) continue;  // given later; only its owner waits
    RETURN_IF_ERROR(Give(next, address, part));
    given[address] = part;
  }
  return given;
}

absl::Status MemoryMap::Adopt(Process next, const Parts& had) {
  const auto has = [](const Parts& parts, uint64_t address, const Part& part) {
    const auto found = parts.find(address);
    return found != parts.end() && found->second == part;
  };
  for (const auto& [address, part] : had) {
    if (!has(parts_, address, part)) TakeBack(*next, address, part);
  }
  for (const auto& [address, part] : parts_) {
    if (part.kind == Part::Kind::kClient || has(had, address, part)) continue;
    RETURN_IF_ERROR(Give(*next, address, part));
  }
  executor_ = std::move(next);
  missing_.clear();
  for (const auto& [address, part] : parts_) {
    if (part.kind == Part::Kind::kClient) GiveAgain(address, part);
  }
  return absl::OkStatus();
}

// Importing clients' memory may take long. Meanwhile only the owner's queues are held back.
void MemoryMap::GiveAgain(uint64_t address, const Part& part) {
  ++missing_[part.owner];
  const auto given = std::make_shared<absl::Status>();
  background_.Run([process = executor_, address, part, given] { *given = Give(*process, address, part); },
                  [this, process = executor_, owner = part.owner, given] {
                    if (process == executor_)
                      NoteGiven(owner, *given);  // otherwise the next executor gets it
                  });
}

void MemoryMap::NoteGiven(uint64_t owner, const absl::Status& status) {
  const auto found = missing_.find(owner);
  if (found == missing_.end() || absl::IsUnavailable(status))
    return;  // the session is blamed, or the executor is lost
  if (status.ok() && --found->second != 0) return;
  missing_.erase(found);
  given_.emplace_back(owner, status);
}

std::vector<std::pair<uint64_t, absl::Status>> MemoryMap::TakeGiven() {
  background_.FinishDone();
  return std::exchange(given_, {});
}

}  // namespace xpud::executor::process
