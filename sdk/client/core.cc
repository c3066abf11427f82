#include "sdk/client/core.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "proto/base/pci_address.h"
#include "proto/base/status_macros.h"
#include "proto/transport/host_memory.h"
#include "sdk/client/look.h"
#include "sdk/client/visible_devices.h"

namespace xpud::client {
namespace {

constexpr uint64_t kMaxIdleBytes = uint64_t{2} << 30;  // of host memory

std::atomic<uint32_t> fork_epoch{0};

uint32_t WatchForks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { fork_epoch.fetch_add(1); });
  (void)registered;
  return fork_epoch.load();
}

ProfiledCommand::Kind KindOf(wire::CommandKind kind) {
  switch (kind) {
    case wire::CommandKind::kExecute:
      return ProfiledCommand::Kind::kOp;
    case wire::CommandKind::kUpload:
    case wire::CommandKind::kUploadInline:
      return ProfiledCommand::Kind::kUpload;
    case wire::CommandKind::kDownload:
      return ProfiledCommand::Kind::kDownload;
    case wire::CommandKind::kCopy:
    case wire::CommandKind::kCopyFrom:
      return ProfiledCommand::Kind::kCopy;
    default:
      return ProfiledCommand::Kind::kOther;
  }
}

}  // namespace

Core::Core(Connection connection, const ConnectOptions& options, uint32_t used_generations)
    : connection_(std::move(connection)),
      interrupt_(options.interrupt),
      fork_epoch_(WatchForks()),
      used_generations_(used_generations) {
  const transport::Welcome& welcome = connection_.welcome;
  const uint32_t count = std::min<uint32_t>(welcome.device_count, transport::kMaxDevices);
  visible_ = VisibleDevices(std::getenv("XPUD_VISIBLE_DEVICES"), count);
  for (const uint32_t d : visible_) {
    const transport::DeviceRecord& record = welcome.devices[d];
    devices_.push_back({transport::GetText(record.name), transport::GetText(record.kind),
                        transport::GetText(record.vendor), record.total_memory, record.compute_units,
                        PciAddress::OfBits(record.pci_address).Text()});
  }
}

Core::~Core() = default;

bool Core::forked() const { return fork_epoch.load(std::memory_order_relaxed) != fork_epoch_; }

absl::Status Core::CheckUsable() const {
  if (!forked()) [[likely]]
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this xpud session belongs to the parent process; make one after fork");
}

absl::Status Core::status() const {
  RETURN_IF_ERROR(CheckUsable());
  for (uint32_t device = 0; device < devices_.size(); ++device) {
    if (const DeviceSession* const opened = IfOpen(device)) RETURN_IF_ERROR(opened->status());
  }
  return connection_.socket->status();
}

absl::StatusOr<uint32_t> Core::FromDaemon(uint32_t at_daemon) const {
  for (uint32_t device = 0; device < visible_.size(); ++device) {
    if (visible_[device] == at_daemon) return device;
  }
  return absl::NotFoundError(absl::StrCat("the memory is on device ", at_daemon, " of the daemon at ",
                                          address(),
                                          ", which this process does not see; is XPUD_VISIBLE_DEVICES set?"));
}

absl::Status Core::LostBuffer() {
  return absl::UnavailableError(
      "this tensor's memory was at an xpud daemon that died, and is lost; make the tensor anew");
}

uint32_t Core::CloseBuffers() {
  NoteEnd();
  uint32_t highest = used_generations_;
  for (uint32_t device = 0; device < devices_.size(); ++device) {
    if (DeviceSession* const opened = IfOpen(device)) highest = std::max(highest, opened->CloseBuffers());
  }
  return highest;
}

bool Core::HasEnded() const {
  if (has_ended_.load(std::memory_order_relaxed)) return true;
  if (!IsTimeToLook(next_look_) || forked() || status().ok()) return false;
  NoteEnd();
  return true;
}

absl::Status Core::UnreadError(std::chrono::milliseconds wait) const {
  const auto until = std::chrono::steady_clock::now() + wait;
  for (uint32_t device = 0; device < devices_.size() && !forked(); ++device) {
    if (DeviceSession* const opened = IfOpen(device)) RETURN_IF_ERROR(opened->UnreadError(until));
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceSession*> Core::OpenNow(uint32_t device) {
  RETURN_IF_ERROR(CheckUsable());
  if (device >= devices_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", device, " does not exist; there are ", devices_.size()));
  }
  MutexLock lock(open_mutex_);
  if (DeviceSession* const opened = IfOpen(device)) return opened;
  uint64_t peers = 0;
  auto transport = OpenDevice(connection_, visible_[device], &peers);
  if (!transport.ok()) {
    RETURN_IF_ERROR(status());  // says more
    return transport.status();
  }
  sessions_[device] = std::make_unique<DeviceSession>(*this, device, *std::move(transport), connection_,
                                                      used_generations_, peers);
  sessions_[device]->Observe(observer_);
  open_[device].store(sessions_[device].get(), std::memory_order_release);
  return sessions_[device].get();
}

absl::Status Core::CheckProfiles() const {
  RETURN_IF_ERROR(CheckUsable());
  constexpr uint16_t kFirstVersion = 6;  // an older daemon would close the session
  if (connection_.welcome.version >= kFirstVersion) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the xpud daemon at ", address(), " (version ",
                                               daemon_version(),
                                               ") takes no profiles for clients; update it"));
}

absl::Status Core::SetNice(uint32_t nice) const {
  RETURN_IF_ERROR(CheckUsable());
  constexpr uint16_t kFirstVersion = 8;  // an older daemon would close the session
  if (connection_.welcome.version >= kFirstVersion) return connection_.socket->SetNice(nice);
  return absl::UnimplementedError(absl::StrCat("the xpud daemon at ", address(), " (version ",
                                               daemon_version(), ") cannot lower a session; update it"));
}

absl::Status Core::StartProfile(uint32_t device, uint64_t commands) const {
  RETURN_IF_ERROR(CheckProfiles());
  return connection_.socket->StartProfile(AtDaemon(device), commands);
}

absl::StatusOr<Profile> Core::StopProfile(uint32_t device) const {
  RETURN_IF_ERROR(CheckProfiles());
  ASSIGN_OR_RETURN(transport::SessionProfile recorded, connection_.socket->StopProfile(AtDaemon(device)));
  Profile profile = {{}, std::move(recorded.names), recorded.overwritten};
  profile.commands.reserve(recorded.records.size());
  for (const transport::ProfileRecord& record : recorded.records) {
    const ProfiledCommand::Kind kind = KindOf(record.kind);
    profile.commands.push_back(
        {.sequence = record.sequence,
         .kind = kind,
         .row = kind == ProfiledCommand::Kind::kOp ? ops::FindRow(record.row) : nullptr,
         .queue = record.queue,
         .decoded_ns = record.decoded_ns,
         .began_ns = record.began_ns,
         .ended_ns = record.ended_ns,
         .device_ns = record.device_ns,
         .bytes = record.bytes,
         .kernel = record.kernel,
         .launches = record.launches,
         .refused = record.refused != 0});
  }
  return profile;
}

void Core::Observe(CommandObserver* observer) {
  MutexLock lock(open_mutex_);
  observer_ = observer;
  for (const auto& session : sessions_)
    if (session != nullptr) session->Observe(observer);
}

absl::StatusOr<HostCache::Block*> Core::AllocateHost(uint64_t bytes) {
  RETURN_IF_ERROR(CheckUsable());
  if (visible_.empty()) return absl::FailedPreconditionError("there is no device to share memory with");
  absl::StatusOr<HostCache::Block*> block = TakeHost(bytes, /*sparing=*/false);
  if (!absl::IsResourceExhausted(block.status())) return block;
  RETURN_IF_ERROR(TrimHost(0, /*wait=*/true));
  return TakeHost(bytes, /*sparing=*/true);
}

absl::StatusOr<HostCache::Block*> Core::TakeHost(uint64_t bytes, bool sparing) {
  for (;;) {
    uint64_t more;
    {
      SpinLock lock(host_mutex_);
      HostCache::Block* const block = host_.Take(
          bytes, [&](uint32_t d, uint32_t q, uint64_t sequence) { return IsComplete(d, q, sequence); });
      if (block != nullptr) return block;
      more = host_.NextMemoryBytes(bytes, sparing);
    }
    RETURN_IF_ERROR(AddHostMemory(more));
  }
}

absl::Status Core::AddHostMemory(uint64_t bytes) {
  const auto open_devices = [&] {
    uint64_t mask = 0;
    for (uint32_t device = 0; device < devices_.size(); ++device) {
      if (IfOpen(device) != nullptr) mask |= uint64_t{1} << visible_[device];
    }
    return mask;
  };
  if (open_devices() == 0) RETURN_IF_ERROR(Open(0).status());
  ASSIGN_OR_RETURN(UniqueFd fd, transport::CreateHostMemory(bytes));
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(fd, bytes, Access::kReadWrite));
#ifdef MADV_POPULATE_WRITE
  (void)madvise(mapping.data(), bytes, MADV_POPULATE_WRITE);  // avoids page faults, if the kernel knows it
#endif
  MutexLock sharing(share_mutex_);
  const uint64_t devices = open_devices();
  const uint32_t id = next_memory_.fetch_add(1);
  RETURN_IF_ERROR(connection_.socket->ShareHostMemory(id, fd, bytes, devices));
  SpinLock lock(host_mutex_);
  host_.Add(id, std::move(fd), std::move(mapping), devices);
  has_host_.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Core::ShareHost(std::span<const std::byte> bytes, uint32_t device) {
  const uint64_t wanted = uint64_t{1} << visible_[device];
  HostCache::Memory* memory;
  {
    SpinLock lock(host_mutex_);
    const HostCache::Place place = host_.Find(bytes);
    if (place.block == nullptr || (place.block->memory->devices & wanted) != 0) [[likely]]
      return absl::OkStatus();
    memory = place.block->memory;  // is not idle, so it is not given back
  }
  MutexLock sharing(share_mutex_);
  {
    SpinLock lock(host_mutex_);
    if ((memory->devices & wanted) != 0) return absl::OkStatus();
  }
  RETURN_IF_ERROR(
      connection_.socket->ShareHostMemory(memory->id, memory->fd, memory->mapping.size(), wanted));
  SpinLock lock(host_mutex_);
  memory->devices |= wanted;
  return absl::OkStatus();
}

void Core::FreeHost(HostCache::Block* block) {
  if (forked()) return;
  {
    SpinLock lock(host_mutex_);
    host_.Give(block);
    if (host_.free_bytes() <= kMaxIdleBytes) return;
  }
  (void)TrimHost(kMaxIdleBytes, /*wait=*/false);  // fails if the session has ended, which frees everything
}

absl::Status Core::TrimHost(uint64_t keep, bool wait) {
  std::array<uint64_t, transport::kMaxDevices> last{};
  for (;;) {
    std::unique_ptr<HostCache::Memory> idle;
    {
      SpinLock lock(host_mutex_);
      if (host_.free_bytes() > keep) {
        idle = host_.TakeIdle(
            [&](uint32_t d, uint32_t q, uint64_t sequence) { return IsComplete(d, q, sequence); });
      }
    }
    if (idle == nullptr) break;
    for (uint32_t device = 0; device < devices_.size(); ++device) {
      if ((idle->devices >> visible_[device] & 1) == 0) continue;
      ASSIGN_OR_RETURN(last[device], IfOpen(device)->ReleaseHost(idle->id));
    }
  }
  for (uint32_t device = 0; device < devices_.size() && wait; ++device) {
    if (last[device] != 0) RETURN_IF_ERROR(IfOpen(device)->AwaitCommand(0, last[device]));
  }
  return absl::OkStatus();
}

bool Core::IsInHost(std::span<const std::byte> bytes) {
  if (!has_host_.load(std::memory_order_acquire)) [[likely]]
    return false;
  SpinLock lock(host_mutex_);
  return host_.Find(bytes).block != nullptr;
}

bool Core::UploadsInPlace(std::span<const std::byte> bytes, size_t most) {
  if (!has_host_.load(std::memory_order_acquire)) [[likely]]
    return false;
  SpinLock lock(host_mutex_);
  HostCache::Block* const block = host_.Find(bytes).block;
  return block != nullptr &&
         (bytes.size() > most || !HostCache::IsUnused(*block, [&](uint32_t d, uint32_t q, uint64_t sequence) {
            return IsComplete(d, q, sequence);
          }));
}

bool Core::IsHostMemory(const void* address) {
  return !forked() && IsInHost({static_cast<const std::byte*>(address), 1});
}

bool Core::UseHost(std::span<const std::byte> bytes, uint32_t device, uint32_t queue,
                   absl::FunctionRef<uint64_t(const HostCache::Place&)> send) {
  SpinLock lock(host_mutex_);
  const HostCache::Place place = host_.Find(bytes);
  if (place.block == nullptr || (place.block->memory->devices >> visible_[device] & 1) == 0) return false;
  if (const uint64_t sequence = send(place); sequence != 0)
    HostCache::Use(*place.block, device, queue, sequence);
  return true;
}

}  // namespace xpud::client
