#include "daemon/lane/testing/memory_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "daemon/memory/address_sanitizer.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::lane {
namespace {

class MappedChunk final : public executor::Chunk {
 public:
  MappedChunk(void* address, uint64_t bytes) : Chunk(static_cast<std::byte*>(address), bytes) {}
  ~MappedChunk() override { munmap(address(), bytes()); }
  absl::Status Leave() { return Replace(PROT_NONE); }
  absl::Status Return() { return Replace(PROT_READ | PROT_WRITE); }

 private:
  // By new pages.
  absl::Status Replace(int protection) {
    void* const mapped =
        mmap(address(), bytes(), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    XPUD_CHECK(mapped == address());
    return absl::OkStatus();
  }
};

// The memory of another device.
class PeerChunk final : public executor::Chunk {
 public:
  PeerChunk(std::byte* address, uint64_t bytes) : Chunk(address, bytes) {}
};

class OwnMemory final : public executor::HostMemory {
 public:
  OwnMemory(std::byte* address, std::unique_ptr<std::byte, decltype(&std::free)> owned)
      : HostMemory(address, address), owned_(std::move(owned)) {}

 private:
  const std::unique_ptr<std::byte, decltype(&std::free)> owned_;
};

void Store(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

}  // namespace

class MemoryDevice::Queue final : public executor::DeviceQueue {
 public:
  Queue(MemoryDevice& device, uint64_t of) : owner(of), device_(device) { device_.queues_.insert(this); }
  ~Queue() override {
    device_.queues_.erase(this);
    device_.on_queue_end();
  }

  const uint64_t owner;
  bool lost = false;
  bool is_lost() const override { return lost; }

  absl::Status Launch(const kernels::LaunchList& launches,
                      std::span<const executor::MemoryUse> uses) override {
    for (size_t i = 0; i < launches.size(); ++i) XPUD_CHECK(!launches[i].kernel().entry.empty());
    for (const executor::MemoryUse& use : uses)
      XPUD_CHECK(!memory::IsAccessForbidden(reinterpret_cast<void*>(use.address), use.bytes));
    return absl::OkStatus();
  }
  absl::Status Copy(void* target, const void* source, uint64_t bytes) override {
    if (bytes != 0) std::memcpy(target, source, bytes);
    return absl::OkStatus();
  }
  absl::Status Upload(void* target, std::span<const std::byte> source) override {
    return Copy(target, source.data(), source.size());
  }
  absl::Status WriteValue(uint64_t* word, uint64_t value) override {
    RETURN_IF_ERROR(device_.mark_failure_);
    if (device_.properties().synchronous) {
      Store(word, value);
    } else {
      announcements_.emplace_back(word, value);
    }
    return absl::OkStatus();
  }
  absl::Status WriteTimestamp(uint64_t* word) override {
    Store(word, 1);
    return absl::OkStatus();
  }
  bool HasTrouble() const override { return !trouble_.ok(); }
  Trouble TakeTrouble() override { return {std::exchange(trouble_, absl::OkStatus()), {}}; }
  void Raise(const absl::Status& error) { trouble_ = error; }
  void Announce() {
    if (lost) return;
    for (const auto& [word, value] : announcements_) Store(word, value);
    announcements_.clear();
  }

 private:
  MemoryDevice& device_;
  std::vector<std::pair<uint64_t*, uint64_t>> announcements_;
  absl::Status trouble_;
};

class MemoryDevice::Moves final : public executor::Mover {
 public:
  explicit Moves(MemoryDevice& device) : device_(device) {}

  std::shared_ptr<executor::Move> StartLeave(executor::Chunk& chunk, executor::HostParts to,
                                             Done done) override {
    return Start(chunk, std::move(to), std::move(done), /*leaves=*/true);
  }
  std::shared_ptr<executor::Move> StartReturn(executor::Chunk& chunk, executor::HostParts from,
                                              Done done) override {
    return Start(chunk, std::move(from), std::move(done), /*leaves=*/false);
  }
  void Run() {
    for (const std::shared_ptr<One>& move : std::exchange(moves_, {})) move->done(Do(*move));
  }

 private:
  struct One final : executor::Move {
    One(executor::Chunk& of, executor::HostParts at, Done then, bool goes)
        : chunk(of), parts(std::move(at)), done(std::move(then)), leaves(goes) {}
    bool Forget() override { return leaves && !std::exchange(forgotten, true); }
    executor::Chunk& chunk;
    const executor::HostParts parts;
    const Done done;
    const bool leaves;
    bool forgotten = false;
  };

  std::shared_ptr<executor::Move> Start(executor::Chunk& chunk, executor::HostParts parts, Done done,
                                        bool leaves) {
    return moves_.emplace_back(std::make_shared<One>(chunk, std::move(parts), std::move(done), leaves));
  }
  absl::Status Do(const One& move) const {
    if (move.forgotten) return absl::CancelledError("forgotten");
    if (!device_.move_failure_.ok()) return device_.move_failure_;
    auto& chunk = static_cast<MappedChunk&>(move.chunk);
    if (!move.leaves) chunk.Return().IgnoreError();
    memory::AllowAccess(chunk.address(), chunk.bytes());  // ASan has forgotten what is allocated
    std::byte* at = chunk.address();
    for (const executor::HostPart& part : move.parts) {
      std::byte* const host = part.memory->address() + part.offset;
      std::memcpy(move.leaves ? host : at, move.leaves ? at : host, part.bytes);
      at += part.bytes;
    }
    if (move.leaves) chunk.Leave().IgnoreError();
    return absl::OkStatus();
  }

  MemoryDevice& device_;
  std::vector<std::shared_ptr<One>> moves_;
};

MemoryDevice::MemoryDevice(bool asynchronous, uint64_t total_memory) {
  properties_.name = "memory";
  properties_.kind = properties_.vendor = "cpu";
  properties_.total_memory = total_memory;
  properties_.compute_units = 2;
  properties_.synchronous = !asynchronous;
  properties_.replaceable = asynchronous;
}

absl::StatusOr<std::unique_ptr<executor::Chunk>> MemoryDevice::AllocateChunk(uint64_t bytes) {
  RETURN_IF_ERROR(allocation_failure_);
  void* const address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  XPUD_CHECK(address != MAP_FAILED);
  return std::make_unique<MappedChunk>(address, bytes);
}

absl::StatusOr<std::unique_ptr<executor::Chunk>> MemoryDevice::ReserveChunk(uint64_t bytes) {
  ASSIGN_OR_RETURN(auto chunk, AllocateChunk(bytes));
  static_cast<MappedChunk&>(*chunk).Leave().IgnoreError();
  return chunk;
}

absl::StatusOr<UniqueFd> MemoryDevice::ExportMemory(const executor::Chunk& chunk) {
  UniqueFd fd(memfd_create("memory", MFD_CLOEXEC));
  std::byte* const address = chunk.address();
  XPUD_CHECK(pwrite(fd.get(), &address, sizeof(address), 0) == sizeof(address));
  return fd;
}

absl::StatusOr<std::unique_ptr<executor::Chunk>> MemoryDevice::MapPeer(const UniqueFd& memory,
                                                                       uint64_t bytes) {
  std::byte* address = nullptr;
  XPUD_CHECK(pread(memory.get(), &address, sizeof(address), 0) == sizeof(address));
  return std::make_unique<PeerChunk>(address, bytes);
}

executor::Mover* MemoryDevice::mover() {
  if (moves_ == nullptr) moves_ = std::make_shared<Moves>(*this);
  return moves_.get();
}

std::vector<executor::Verdict> MemoryDevice::Poll() {
  if (moves_ != nullptr) moves_->Run();
  return std::exchange(verdicts_, {});
}

absl::StatusOr<std::unique_ptr<executor::HostMemory>> MemoryDevice::AllocateHost(uint64_t bytes) {
  auto* const address = static_cast<std::byte*>(std::aligned_alloc(4096, (bytes + 4095) & ~uint64_t{4095}));
  std::memset(address, 0, bytes);
  return std::make_unique<OwnMemory>(address,
                                     std::unique_ptr<std::byte, decltype(&std::free)>(address, &std::free));
}

absl::StatusOr<std::unique_ptr<executor::HostMemory>> MemoryDevice::Import(
    const transport::SharedBytes& memory) {
  return std::make_unique<OwnMemory>(memory.bytes.data(),
                                     std::unique_ptr<std::byte, decltype(&std::free)>(nullptr, &std::free));
}

void MemoryDevice::StartImport(const transport::SharedBytes& memory, uint64_t, ImportDone done) {
  done(Import(memory));
}

absl::StatusOr<std::unique_ptr<executor::DeviceQueue>> MemoryDevice::CreateQueue(PriorityClass,
                                                                                 uint64_t owner) {
  return std::make_unique<Queue>(*this, owner);
}

absl::StatusOr<std::string> MemoryDevice::Assemble(const std::string&) {
  return absl::UnimplementedError("this device does not assemble text");
}

absl::StatusOr<uint64_t> MemoryDevice::RunHostKernel(const kernels::Launch&) {
  return absl::UnimplementedError("this device runs no kernels");
}

void MemoryDevice::Lose(uint64_t owner, std::string reason, size_t spared) {
  size_t found = 0;
  for (Queue* queue : queues_) {
    if (queue->owner == owner) queue->lost = ++found > spared;
  }
  verdicts_.push_back({owner, std::move(reason)});
}

void MemoryDevice::Raise(const absl::Status& error) {
  for (Queue* queue : queues_) queue->Raise(error);
}

void MemoryDevice::Announce() {
  for (Queue* queue : queues_) queue->Announce();
}

}  // namespace xpud::lane
