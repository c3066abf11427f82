// A client's whole session on a device: commands on a real ring, cut into batches, run by a real
// DeviceSession with real planners and pool, on a device that keeps memory and runs nothing. The first byte
// chooses the device and how the input is cut; the rest goes onto the ring.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "daemon/lane/testing/memory_device.h"
#include "daemon/session/device_session.h"
#include "proto/base/check.h"
#include "proto/transport/shm_server.h"
#include "tests/fuzz/bytes.h"

namespace xpud::fuzz {
namespace {

using lane::MemoryDevice;
using session::DeviceSession;
using stream::DeviceState;

constexpr uint64_t kDeviceBytes = uint64_t{256} << 20, kSessionBytes = 24 << 20;
constexpr uint64_t kHostBytes = 2 * transport::kHostMemoryUnit;
constexpr uint64_t kSliceNs = 1'000'000'000;
const Tenant kClient = {1}, kNeighbour = {2};

enum Mode : uint8_t {
  kAsynchronous = 1,  // the device is asynchronous
  kLate = 2,          // and reports progress only when nothing else can continue
  kShared = 4,        // the client shares host memory, ids 1 and 2
  kOddTail = 8,       // in the end, a tail is published that is not a multiple of 8
};
constexpr int kBatchShift = 4;  // the mode's upper bits: commands per batch, 0: all at once

// Lives as long as the process, with its compiled kernels. A neighbour holds memory between the client's.
struct Machine {
  explicit Machine(bool asynchronous) {
    auto device = std::make_unique<MemoryDevice>(asynchronous, kDeviceBytes);
    raw = device.get();
    kernels::KernelLibrary::Options options;
    options.cache_directory = std::filesystem::canonical("/proc/self/exe").string() + ".kernels";
    options.workers = 2;
    options.elsewhere = asynchronous;
    options.test_kernels = true;
    state.library = *kernels::KernelLibrary::Create(options);
    state.Use(std::move(device), 0);
    state.pool->ledger().SetTenantQuota(kClient, kSessionBytes);
    memory::Ledger::Account& neighbour = state.pool->Open(kNeighbour, &neighbours_credit, &neighbours_credit);
    for (const uint64_t bytes : {512, 4096}) {
      neighbours.push_back(*state.pool->Allocate(bytes, neighbour));
      std::fill_n(neighbours.back().address, bytes, kPattern);
    }
    used = state.pool->used_bytes();
  }
  void CheckUntouched() const {
    for (const memory::Block& block : neighbours) {
      XPUD_CHECK(std::all_of(block.address, block.address + block.bytes,
                             [](std::byte byte) { return byte == kPattern; }));
    }
  }

  static constexpr std::byte kPattern{0x5a};
  MemoryDevice* raw;
  DeviceState state;
  std::atomic<uint64_t> neighbours_credit{0};
  std::vector<memory::Block> neighbours;
  uint64_t used = 0;
};

Machine& MachineOf(bool asynchronous) {
  static auto* const machines = new std::array<Machine, 2>{Machine(false), Machine(true)};
  return (*machines)[asynchronous];
}

class Client {
 public:
  Client(uint8_t mode, Machine& machine) : mode_(mode), machine_(machine) {
    transport::DeviceFds fds;
    std::shared_ptr<transport::ServerTransport> server = *transport::ShmServer::Create(fds);
    control_ = *Mapping::Map(fds.ring, transport::kPageBytes + transport::kRingBytes, Access::kReadWrite);
    completion_ = *Mapping::Map(fds.completion, sizeof(transport::CompletionPage), Access::kReadOnly);
    whole_ = std::make_shared<session::Session>(1, session::Peer{.pid = 1, .tenant = kClient, .name = "fuzz"},
                                                std::vector<uint32_t>{0}, memories_);
    session_ = *DeviceSession::Create(whole_, 0, machine.state, server, space_);
    whole_->SetOpen(0, server);
    if ((mode & kShared) != 0) Share();
  }

  // Puts bytes onto the ring and runs the session. Returns false if the session must be closed.
  bool Publish(std::span<const std::byte> bytes, size_t beyond = 0) {
    std::copy(bytes.begin(), bytes.end(), control_.data() + transport::kPageBytes + tail_);
    tail_ += bytes.size();
    page().tail.store(tail_ + beyond, std::memory_order_release);
    return RunAll();
  }
  size_t room() const { return transport::kRingBytes - tail_; }

  void End() {
    for (int turn = 0; !session_->End(); ++turn) {
      XPUD_CHECK(turn < kMaxTurns);
      machine_.raw->Announce();
    }
    session_.reset();
    machine_.state.shared->Revoke(kClient);
    XPUD_CHECK(machine_.state.shared->tenants().empty());
    XPUD_CHECK(machine_.state.pool->used_bytes() == machine_.used);
    machine_.CheckUntouched();
  }

 private:
  static constexpr int kMaxTurns = 100'000;

  transport::ControlPage& page() const { return *reinterpret_cast<transport::ControlPage*>(control_.data()); }
  void Share() {
    for (const uint32_t id : {1u, 2u}) {
      auto memory =
          handles::HostMemories::Add(memories_, id, *transport::CreateHostMemory(kHostBytes), kHostBytes);
      XPUD_CHECK(session_->ShareHostMemory(id, *std::move(memory), [](const absl::Status&) {}).ok());
    }
  }

  // Runs until there is no more work. A stalled session must continue when what it waits for has arrived.
  bool RunAll() {
    for (int turn = 0, idle = 0; idle < 2; ++turn) {
      XPUD_CHECK(turn < kMaxTurns);
      page().attention.fetch_add(1, std::memory_order_relaxed);
      const auto progress = session_->Run(kSliceNs);
      CheckAccounts();
      if (!progress.ok()) {
        XPUD_CHECK(!progress.status().message().empty());
        session_->transport().Close("breach", transport::kSessionClosed);
        return false;
      }
      if (*progress == DeviceSession::Progress::kWorked && (mode_ & kLate) != 0) continue;
      machine_.raw->Announce();
      if (*progress == DeviceSession::Progress::kStalled) machine_.state.library->WaitForCompiles();
      CopyLoans();
      idle = *progress == DeviceSession::Progress::kIdle && !session_->under_way() ? idle + 1 : 0;
    }
    XPUD_CHECK(session_->counters().commands_completed == session_->counters().commands_submitted);
    return true;
  }
  // As another device does, which the session does not have.
  void CopyLoans() {
    handles::Loans& loans = whole_->loans();
    for (;; ++loan_) {
      const auto loan = loans.Find(0, loan_);
      XPUD_CHECK(loan.ok());
      if (*loan == nullptr || !loans.Borrow(**loan)) return;  // it is not ready
      if ((*loan)->error().ok())
        XPUD_CHECK((*loan)->offset() + (*loan)->bytes() <= (*loan)->memory()->bytes());
      loans.Return(**loan);
    }
  }
  void CheckAccounts() const {
    const uint64_t held = session_->allocated_bytes() - session_->shared_bytes();
    XPUD_CHECK(held <= kSessionBytes);
    const auto& sharers = machine_.state.shared->tenants();
    if (const auto shared = sharers.find(kClient); shared != sharers.end()) {
      XPUD_CHECK(shared->second.bytes == shared->second.account->credit());
      XPUD_CHECK(shared->second.bytes == shared->second.account->held());
      XPUD_CHECK(shared->second.bytes + session_->account().credit() <= kSessionBytes);
    } else {
      XPUD_CHECK(session_->shared_bytes() == 0);
    }
    XPUD_CHECK(held + machine_.used <= machine_.state.pool->used_bytes());
    const auto& page = *reinterpret_cast<const transport::CompletionPage*>(completion_.data());
    XPUD_CHECK(page.memory.allocated.load() == held);
    XPUD_CHECK(page.memory.credit.load() == session_->account().credit());
    XPUD_CHECK(held <= session_->account().credit() && session_->account().credit() <= kSessionBytes);
    XPUD_CHECK(session_->counters().commands_completed <= session_->counters().commands_submitted);
  }

  const uint8_t mode_;
  Machine& machine_;
  Mapping control_, completion_;
  handles::TableSpace space_;
  const std::shared_ptr<handles::HostMemories> memories_ =
      std::make_shared<handles::HostMemories>(2 * kHostBytes, /*for_executors=*/false);
  std::shared_ptr<session::Session> whole_;
  std::unique_ptr<DeviceSession> session_;
  uint64_t tail_ = 0;
  uint64_t loan_ = 1;  // the next one
};

// Returns as many complete commands as a batch has; if the bytes are not commands, the rest, padded to a
// multiple of 8.
std::vector<std::byte> NextBatch(Bytes& input, size_t commands) {
  std::vector<std::byte> batch;
  for (size_t i = 0; !input.empty() && (commands == 0 || i < commands); ++i) {
    uint32_t bytes = 0;
    if (input.rest().size() >= sizeof(bytes)) std::memcpy(&bytes, input.rest().data(), sizeof(bytes));
    const bool whole = bytes >= 8 && bytes % 8 == 0 && bytes <= input.rest().size();
    const auto part = input.Take(whole ? bytes : input.rest().size());
    batch.insert(batch.end(), part.begin(), part.end());
  }
  batch.resize((batch.size() + 7) / 8 * 8);
  return batch;
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  Bytes input(data, size);
  const auto mode = input.Take<uint8_t>();
  Client client(mode, MachineOf((mode & kAsynchronous) != 0));
  bool open = true;
  while (open && !input.empty()) {
    const auto batch = NextBatch(input, mode >> kBatchShift);
    if (batch.size() > client.room()) break;
    open = client.Publish(batch);
  }
  if (open && (mode & kOddTail) != 0) XPUD_CHECK(!client.Publish({}, 4));
  client.End();
  return 0;
}
