#include "daemon/executor/process/memory_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "daemon/executor/process/memory_holder.h"
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

absl::StatusOr<std::unique_ptr<MemoryMap>> MemoryMap::Create(uint32_t device, std::function<void()> wake) {
  ASSIGN_OR_RETURN(AddressSpace chunks, AddressSpace::ForChunks());
  ASSIGN_OR_RETURN(AddressSpace hosts, AddressSpace::ForHostMemory(device));
  ASSIGN_OR_RETURN(AddressSpace clients, AddressSpace::ForClientMemory(device));
  return std::unique_ptr<MemoryMap>(
      new MemoryMap({std::move(chunks), std::move(hosts), std::move(clients)}, std::move(wake)));
}

absl::StatusOr<std::unique_ptr<Chunk>> MemoryMap::AddChunk(
    uint64_t bytes, absl::FunctionRef<absl::StatusOr<Part>(uint64_t address)> place) {
  if (holders_.front()->executor() == nullptr)
    return absl::UnavailableError("the device's executor is being replaced");
  // CUDA puts memory of its own, such as the stacks of kernels, where a chunk was freed. Such addresses stay
  // taken.
  constexpr int kMaxTries = 64;
  absl::Status status;
  for (int i = 0; i < kMaxTries; ++i) {
    ASSIGN_OR_RETURN(const uint64_t address, addresses_.chunks.Take(bytes));
    auto part = place(address);
    if (part.ok()) {
      parts_[address] = *std::move(part);
      return std::make_unique<DeviceChunk>(*this, address, bytes);
    }
    status = part.status();
    if (absl::IsAlreadyExists(status)) continue;
    addresses_.chunks.Return(address);
    break;
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Chunk>> MemoryMap::AllocateChunk(uint64_t bytes) {
  return AddChunk(bytes, [&](uint64_t address) -> absl::StatusOr<Part> {
    const MemoryHolder& first = *holders_.front();
    ASSIGN_OR_RETURN(UniqueFd fd, first.executor()->Allocate(address, bytes));
    Part part = {bytes, std::make_shared<UniqueFd>(std::move(fd)), Part::Kind::kChunk};
    absl::Status given = GiveHolders(address, part, &first);
    if (given.ok()) return part;
    TakeBack(*first.executor(), address, part);
    return given;
  });
}

absl::StatusOr<std::unique_ptr<Chunk>> MemoryMap::ReserveChunk(uint64_t bytes) {
  return AddChunk(bytes, [&](uint64_t address) -> absl::StatusOr<Part> {
    Part part = {bytes, nullptr, Part::Kind::kChunk};
    RETURN_IF_ERROR(GiveHolders(address, part, nullptr));
    return part;
  });
}

absl::StatusOr<std::unique_ptr<Chunk>> MemoryMap::MapPeer(const UniqueFd& memory, uint64_t bytes) {
  UniqueFd fd(fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return DescriptorError("fcntl(F_DUPFD_CLOEXEC)");
  const Part part = {bytes, std::make_shared<UniqueFd>(std::move(fd)), Part::Kind::kChunk};
  return AddChunk(bytes, [&](uint64_t address) -> absl::StatusOr<Part> {
    RETURN_IF_ERROR(GiveHolders(address, part, nullptr));
    return part;
  });
}

absl::StatusOr<UniqueFd> MemoryMap::Export(const Chunk& chunk) const {
  const std::shared_ptr<UniqueFd> memory = MemoryAt(reinterpret_cast<uint64_t>(chunk.address()));
  if (memory == nullptr) return absl::FailedPreconditionError("the chunk's memory is away");
  UniqueFd fd(fcntl(memory->get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return DescriptorError("fcntl(F_DUPFD_CLOEXEC)");
  return fd;
}

std::vector<SharedExecutor*> MemoryMap::Executors() const {
  std::vector<SharedExecutor*> executors;
  for (const MemoryHolder* const holder : holders_) executors.push_back(&holder->executors());
  return executors;
}

std::vector<Process> MemoryMap::Present() const {
  std::vector<Process> present;
  for (const MemoryHolder* const holder : holders_)
    if (holder->executor() != nullptr) present.push_back(holder->executor());
  return present;
}

absl::Status MemoryMap::GiveHolders(uint64_t address, const Part& part, const MemoryHolder* except) {
  std::vector<Process> given;
  for (const MemoryHolder* const holder : holders_) {
    if (holder == except || holder->executor() == nullptr) continue;
    const absl::Status status = Give(*holder->executor(), address, part);
    if (absl::IsUnavailable(status)) continue;  // it has just been lost; the next one gets the memory
    if (!status.ok()) {
      for (const Process& process : given) TakeBack(*process, address, part);
      return status;
    }
    given.push_back(holder->executor());
  }
  return absl::OkStatus();
}

absl::Status MemoryMap::AddHost(uint64_t address, uint64_t bytes, UniqueFd fd) {
  const Part part = {bytes, std::make_shared<UniqueFd>(std::move(fd)), Part::Kind::kHost};
  RETURN_IF_ERROR(GiveHolders(address, part, nullptr));
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
    for (const MemoryHolder* const holder : holders_) {
      const Process& process = holder->executor();
      if (process == nullptr) continue;
      if (part.kind != Part::Kind::kClient)
        TakeBack(*process, address, part);
      else if (holder->Expects(part.owner))
        RunLater([process, address, part] { TakeBack(*process, address, part); }, [] {});
    }
  }
  addresses_.chunks.Return(address);
  addresses_.hosts.Return(address);
  addresses_.clients.Return(address);
}

absl::Status MemoryMap::Give(ExecutorProcess& process, uint64_t address, const Part& part) {
  switch (part.kind) {
    case Part::Kind::kChunk:
      return part.fd == nullptr ? process.Reserve(address, part.bytes)
                                : process.Import(address, part.bytes, *part.fd);
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
      ClientImport{memory.bytes.data(), *there, std::move(part), std::move(done), {}, {}}));
}

std::vector<MemoryMap::Target> MemoryMap::TargetsOf(const ClientImport& import) const {
  std::vector<Target> targets;
  for (MemoryHolder* const holder : holders_) {
    const bool first = holder == holders_.front();
    if (!holder->Expects(import.part.owner) || (!first && holder->executor() == nullptr)) continue;
    const auto before = std::ranges::find(import.targets, holder, &Target::holder);
    const Process had = before != import.targets.end() ? before->process : nullptr;
    if (had == nullptr || had != holder->executor())
      targets.push_back({holder, &holder->executors(), had, first});
  }
  return targets;
}

absl::Status MemoryMap::GiveTarget(Target& target, const ClientImport& import) {
  for (;;) {
    const Process next = target.first ? target.executors->OtherThan(target.process) : target.executors->Get();
    if (next == nullptr && target.first) return absl::UnavailableError("the device's executor is lost");
    if (next == nullptr || next == target.process) return absl::OkStatus();
    target.process = next;
    absl::Status given = Give(*next, import.there, import.part);
    if (!absl::IsUnavailable(given)) return given;
  }
}

void MemoryMap::Import(const std::shared_ptr<ClientImport>& import) {
  std::vector<Target> targets = TargetsOf(*import);
  std::erase_if(import->targets, [&](const Target& had) {
    return std::ranges::find(targets, had.holder, &Target::holder) != targets.end();
  });
  RunLater(
      [import, targets = std::move(targets)]() mutable {
        for (Target& target : targets) {
          import->status.Update(GiveTarget(target, *import));
          import->targets.push_back(target);
        }
      },
      [this, import] { FinishImport(import); });
}

// Starts over for executors that came meanwhile: they were given the memory that was listed before.
void MemoryMap::FinishImport(const std::shared_ptr<ClientImport>& import) {
  if (import->status.ok() && !TargetsOf(*import).empty()) return Import(import);
  if (!import->status.ok()) {
    for (const Target& target : import->targets) {
      if (target.process != nullptr)
        RunLater([process = target.process, address = import->there,
                  part = import->part] { TakeBack(*process, address, part); },
                 [] {});
    }
    addresses_.clients.Return(import->there);
    return import->done(import->status);
  }
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

}  // namespace xpud::executor::process
