#include "absl/strings/str_cat.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"
#include "sdk/client/core.h"
#include "xpud/xpud.h"

namespace xpud {

void Buffer::Free() {
  if (core_ != nullptr) core_->Free(device_, handle_, bytes_);
  core_ = nullptr;
  handle_ = {};
  bytes_ = 0;
}

void HostBuffer::Free() {
  if (core_ != nullptr) core_->FreeHost(static_cast<client::HostCache::Block*>(block_));
  core_ = nullptr;
  block_ = nullptr;
  bytes_ = {};
}

bool Event::Query() const { return core_ == nullptr || core_->Query(queue_, sequence_); }

absl::Status Event::Synchronize() const {
  return core_ == nullptr ? absl::OkStatus() : core_->Await(queue_, sequence_);
}

absl::StatusOr<int64_t> Event::ElapsedNanoseconds(const Event& earlier) const {
  if (timestamp_ == nullptr || earlier.timestamp_ == nullptr) {
    return absl::InvalidArgumentError(
        "both events must be recorded with timing enabled before elapsed time can be calculated");
  }
  if (!Query() || !earlier.Query())
    return absl::FailedPreconditionError("both events must be completed before calculating elapsed time");
  return static_cast<int64_t>(core_->Timestamp(*timestamp_) - earlier.core_->Timestamp(*earlier.timestamp_));
}

absl::StatusOr<Buffer> Queue::Allocate(uint64_t bytes) const {
  ASSIGN_OR_RETURN(const BufferHandle handle, core_->Allocate(id_, device_, bytes));
  return Buffer(core_.get(), device_, handle, bytes);
}

absl::Status Queue::Execute(const OpCall& call) const { return core_->Execute(id_, call); }

absl::Status Queue::Upload(std::span<const std::byte> source, BufferHandle target, uint64_t offset) const {
  return core_->Upload(id_, source, target, offset);
}

absl::Status Queue::Download(BufferHandle source, uint64_t offset, std::span<std::byte> target) const {
  return core_->Download(id_, source, offset, target);
}

absl::Status Queue::StartUpload(std::span<const std::byte> source, BufferHandle target,
                                uint64_t offset) const {
  return core_->StartUpload(id_, source, target, offset);
}

absl::Status Queue::StartDownload(BufferHandle source, uint64_t offset, std::span<std::byte> target) const {
  return core_->StartDownload(id_, source, offset, target);
}

absl::Status Queue::Copy(BufferHandle source, uint64_t source_offset, BufferHandle target,
                         uint64_t target_offset, uint64_t bytes) const {
  return core_->Copy(id_, source, source_offset, target, target_offset, bytes);
}

absl::StatusOr<Event> Queue::Record(bool timing) const {
  Event event;
  event.core_ = core_;
  event.queue_ = id_;
  if (timing) {
    ASSIGN_OR_RETURN(event.timestamp_, core_->RecordTimestamp(id_));
  }
  event.sequence_ = core_->LastSequence(id_);
  return event;
}

absl::Status Queue::Wait(const Event& event) const {
  if (event.core_ == nullptr) return absl::OkStatus();
  if (event.core_ != core_) return event.Synchronize();  // another session's event: wait here
  return core_->WaitInQueue(id_, event.queue_, event.sequence_);
}

bool Queue::Query() const { return core_->Query(id_, core_->LastSequence(id_)); }

absl::Status Queue::Synchronize() const { return core_->Synchronize(id_); }

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const ConnectOptions& options) {
  ASSIGN_OR_RETURN(client::Connection connection, client::Connect(options));
  return std::unique_ptr<Session>(
      new Session(std::make_shared<client::Core>(std::move(connection), options)));
}

Session::~Session() = default;

const std::vector<DeviceInfo>& Session::devices() const { return core_->devices(); }
const ops::RowSet& Session::rows() const { return core_->rows(); }
Queue Session::DefaultQueue(uint32_t device) const {
  XPUD_CHECK(device < devices().size());  // none may be visible
  return Queue(core_, device, core_->default_queue(device));
}

absl::StatusOr<Queue> Session::CreateQueue(uint32_t device, int priority) {
  ASSIGN_OR_RETURN(const uint32_t id, core_->CreateQueue(device, priority));
  return Queue(core_, device, id);
}

absl::Status Session::DestroyQueue(const Queue& queue) {
  if (queue.id() == core_->default_queue(queue.device()))
    return absl::InvalidArgumentError("a default queue lives as long as its session");
  return core_->DestroyQueue(queue.id());
}

absl::StatusOr<HostBuffer> Session::AllocateHost(uint64_t bytes) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  ASSIGN_OR_RETURN(client::HostCache::Block* const block, core_->AllocateHost(bytes));
  buffer.core_ = core_;
  buffer.block_ = block;
  buffer.bytes_ = {block->address, bytes};
  return buffer;
}

bool Session::IsHostMemory(const void* address) const { return core_->IsHostMemory(address); }

absl::Status Session::Synchronize(uint32_t device) { return core_->SynchronizeDevice(device); }
MemoryStats Session::Memory(uint32_t device) const { return core_->Memory(device); }
void Session::ResetPeakMemory(uint32_t device) { core_->ResetPeakMemory(device); }
void Session::ResetAccumulatedMemory(uint32_t device) { core_->ResetAccumulatedMemory(device); }
absl::Status Session::status() const { return core_->status(); }
const std::string& Session::address() const { return core_->address(); }
bool Session::started_daemon() const { return core_->started_daemon(); }

}  // namespace xpud
