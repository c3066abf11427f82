#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/check.h"
#include "proto/base/daemon_gone.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "sdk/client/core.h"
#include "xpud/xpud.h"

namespace xpud {

void Buffer::Free() {
  if (core_ != nullptr) core_->IfOpen(device_)->Free(handle_, bytes_);
  core_ = nullptr;
  handle_ = {};
  bytes_ = 0;
}

void LoopKernel::Forget() {
  if (core_ != nullptr) core_->IfOpen(device_)->ForgetKernel(id_);
  core_ = nullptr;
  id_ = 0;
}

void HostBuffer::Free() {
  if (core_ != nullptr) core_->FreeHost(static_cast<client::HostCache::Block*>(block_));
  core_ = nullptr;
  block_ = nullptr;
  bytes_ = {};
}

absl::StatusOr<bool> Event::Query() const {
  if (core_ == nullptr) return true;
  return core_->IfOpen(device_)->Query(queue_, sequence_, errors_);
}

absl::Status Event::Synchronize() const {
  return core_ == nullptr ? absl::OkStatus() : core_->IfOpen(device_)->Await(queue_, sequence_, errors_);
}

absl::StatusOr<int64_t> Event::ElapsedNanoseconds(const Event& earlier) const {
  if (timestamp_ == nullptr || earlier.timestamp_ == nullptr) {
    return absl::InvalidArgumentError(
        "both events must be recorded with timing enabled before elapsed time can be calculated");
  }
  for (const Event* event : {this, &earlier}) {
    const client::DeviceSession* const on = event->core_->IfOpen(event->device_);
    if (on->IsComplete(event->queue_, event->sequence_)) continue;
    RETURN_IF_ERROR(on->status());
    return absl::FailedPreconditionError("both events must be completed before calculating elapsed time");
  }
  const auto time_of = [](const Event& event) {
    return event.core_->IfOpen(event.device_)->Timestamp(*event.timestamp_);
  };
  const uint64_t end = time_of(*this), begin = time_of(earlier);
  for (const Event* event : {this, &earlier})
    RETURN_IF_ERROR(event->core_->IfOpen(event->device_)->status());  // else they may have been emptied
  return static_cast<int64_t>(end - begin);
}

absl::StatusOr<Buffer> Queue::Allocate(uint64_t bytes) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  ASSIGN_OR_RETURN(const BufferHandle handle, on->Allocate(id_, bytes));
  return Buffer(core_.get(), device_, handle, bytes);
}

absl::Status Queue::Execute(const OpCall& call) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  return on->Execute(id_, call);
}

absl::StatusOr<LoopKernel> Queue::DefineKernel(std::span<const std::byte> bytes,
                                               std::string_view name) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  ASSIGN_OR_RETURN(const uint32_t id, on->DefineKernel(id_, bytes, name));
  return LoopKernel(core_, device_, id);
}

absl::Status Queue::PrepareKernel(const LoopKernel& kernel, std::span<const int64_t> sizes,
                                  std::span<const int64_t> elements) const {
  if (kernel.id_ == 0 || kernel.core_ != core_ || kernel.device_ != device_)
    return absl::InvalidArgumentError("the loop kernel is not defined on this queue's device");
  return core_->IfOpen(device_)->PrepareKernel(id_, kernel.id_, sizes, elements);
}

absl::Status Queue::Upload(std::span<const std::byte> source, BufferHandle target, uint64_t offset) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  return on->Upload(id_, source, target, offset);
}

absl::Status Queue::Download(BufferHandle source, uint64_t offset, std::span<std::byte> target) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  return on->Download(id_, source, offset, target);
}

absl::Status Queue::StartUpload(std::span<const std::byte> source, BufferHandle target,
                                uint64_t offset) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  return on->StartUpload(id_, source, target, offset);
}

absl::Status Queue::StartDownload(BufferHandle source, uint64_t offset, std::span<std::byte> target) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  return on->StartDownload(id_, source, offset, target);
}

absl::Status Queue::Copy(BufferHandle source, uint64_t source_offset, BufferHandle target,
                         uint64_t target_offset, uint64_t bytes) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  return on->Copy(id_, source, source_offset, target, target_offset, bytes);
}

absl::StatusOr<bool> Queue::CopiesDirectly(const Queue& source_queue) const {
  if (source_queue.core_ != core_ || source_queue.device_ == device_)
    return absl::InvalidArgumentError("a copy between devices needs two devices of one session");
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  ASSIGN_OR_RETURN(const client::DeviceSession* const source, core_->Open(source_queue.device_));
  return on->CopiesFrom(*source);
}

absl::Status Queue::CopyFrom(const Queue& source_queue, BufferHandle source, uint64_t source_offset,
                             BufferHandle target, uint64_t target_offset, uint64_t bytes) const {
  ASSIGN_OR_RETURN(const bool direct, CopiesDirectly(source_queue));
  if (!direct) return CopyThroughHost(source_queue, source, source_offset, target, target_offset, bytes);
  return core_->IfOpen(device_)->CopyFrom(id_, *core_->IfOpen(source_queue.device_), source_queue.id_, source,
                                          source_offset, target, target_offset, bytes);
}

// One piece is downloaded while the one before is uploaded. Where the devices cannot share host memory, each
// step waits.
absl::Status Queue::CopyThroughHost(const Queue& source_queue, BufferHandle source, uint64_t source_offset,
                                    BufferHandle target, uint64_t target_offset, uint64_t bytes) const {
  constexpr uint64_t kPieceBytes = 16 << 20;
  struct Half {
    HostBuffer shared;
    std::vector<std::byte> own;
    Event uploaded;
  };
  Half halves[2];
  const auto part = [&](uint64_t at) {
    Half& half = halves[at / kPieceBytes % 2];
    const std::span<std::byte> whole = half.own.empty() ? half.shared.bytes() : std::span(half.own);
    return whole.first(std::min(bytes - at, kPieceBytes));
  };
  const auto start_download = [&](uint64_t at) {
    return source_queue.StartDownload(source, source_offset + at, part(at));
  };
  for (uint64_t i = 0; i < std::min<uint64_t>(2, (bytes + kPieceBytes - 1) / kPieceBytes); ++i) {
    auto shared = HostBuffer::Allocate(core_, std::min(bytes, kPieceBytes));
    if (shared.ok())
      halves[i].shared = *std::move(shared);
    else
      halves[i].own.resize(std::min(bytes, kPieceBytes));
  }
  if (bytes != 0) RETURN_IF_ERROR(start_download(0));
  for (uint64_t at = 0; at < bytes; at += kPieceBytes) {
    ASSIGN_OR_RETURN(const Event downloaded, source_queue.Record());
    RETURN_IF_ERROR(downloaded.Synchronize());
    if (const uint64_t next = at + kPieceBytes; next < bytes) {
      RETURN_IF_ERROR(halves[next / kPieceBytes % 2].uploaded.Synchronize());
      RETURN_IF_ERROR(start_download(next));
    }
    RETURN_IF_ERROR(StartUpload(part(at), target, target_offset + at));
    ASSIGN_OR_RETURN(halves[at / kPieceBytes % 2].uploaded, Record());
  }
  return absl::OkStatus();
}

absl::StatusOr<Event> Queue::Record(bool timing) const {
  Event event;
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  if (timing) {
    ASSIGN_OR_RETURN(event.timestamp_, on->RecordTimestamp(id_));
  }
  event.core_ = core_;
  event.device_ = device_;
  event.queue_ = id_;
  event.errors_ = on->ErrorsTaken(id_);
  event.sequence_ = on->LastSequence(id_);
  return event;
}

absl::Status Queue::Wait(const Event& event) const {
  if (event.core_ == nullptr) return absl::OkStatus();
  if (event.core_ != core_) return event.Synchronize();  // another session's event: wait here
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device_));
  return on->WaitInQueue(id_, *core_->IfOpen(event.device_), event.queue_, event.sequence_);
}

absl::Status Queue::PushRange(std::string_view name) const {
  client::DeviceSession* const on = core_->IfOpen(device_);
  return on == nullptr ? absl::OkStatus() : on->SendRange(id_, name.empty() ? "range" : name);
}

absl::Status Queue::PopRange() const {
  client::DeviceSession* const on = core_->IfOpen(device_);
  return on == nullptr ? absl::OkStatus() : on->SendRange(id_, {});
}

absl::StatusOr<bool> Queue::Query() const {
  client::DeviceSession* const on = core_->IfOpen(device_);
  if (on == nullptr) return true;
  const uint32_t errors = on->ErrorsTaken(id_);
  return on->Query(id_, on->LastSequence(id_), errors);
}

absl::Status Queue::Synchronize() const {
  RETURN_IF_ERROR(core_->CheckUsable());
  client::DeviceSession* const on = core_->IfOpen(device_);
  return on == nullptr ? absl::OkStatus() : on->Synchronize(id_);
}

namespace {

// As $XPUD_NICE says.
absl::Status LowerAtStart(Session& session) {
  const char* const text = std::getenv("XPUD_NICE");
  if (text == nullptr || *text == '\0') return absl::OkStatus();
  int nice = 0;
  if (!absl::SimpleAtoi(text, &nice) || nice < 0 || nice > 19)
    return absl::InvalidArgumentError(absl::StrCat("XPUD_NICE is '", text, "'; use 0 to 19"));
  return nice == 0 ? absl::OkStatus() : session.SetNice(nice);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Connect(const ConnectOptions& options) {
  ASSIGN_OR_RETURN(client::Connection connection, client::Connect(options));
  std::unique_ptr<Session> session(
      new Session(std::make_shared<client::Core>(std::move(connection), options)));
  RETURN_IF_ERROR(LowerAtStart(*session));
  return session;
}

absl::StatusOr<std::unique_ptr<Session>> Session::ConnectInPlaceOf(const Session& lost,
                                                                   const ConnectOptions& options) {
  // Generations are 32 bits. With half of them used, handles of `lost` could be mistaken at the worst.
  const uint32_t highest = lost.core_->CloseBuffers();
  const uint32_t used = highest <= UINT32_MAX / 2 ? highest : 0;
  ASSIGN_OR_RETURN(client::Connection connection, client::Connect(options));
  std::unique_ptr<Session> session(
      new Session(std::make_shared<client::Core>(std::move(connection), options, used)));
  RETURN_IF_ERROR(LowerAtStart(*session));
  return session;
}

Session::~Session() { ReportUnreadError(); }

void Session::ReportUnreadError() const {
  constexpr std::chrono::seconds kWait(1);
  if (!core_->MayReport()) return;
  const absl::Status unread = core_->UnreadError(kWait);
  if (unread.ok()) return;
  std::fprintf(stderr, "xpud: the program ended with an error that it did not read: %s\n",
               PrintableText(std::string_view(unread.message().data(), unread.message().size())).c_str());
}

const std::vector<DeviceInfo>& Session::devices() const { return core_->devices(); }
const ops::RowSet& Session::rows() const { return core_->rows(); }
bool Session::KnowsLoopKernels() const { return core_->knows_loop_kernels(); }
Queue Session::DefaultQueue(uint32_t device) const {
  XPUD_CHECK(device < devices().size());  // none may be visible
  return Queue(core_, device, 0);
}

absl::StatusOr<Queue> Session::CreateQueue(uint32_t device, int priority) {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device));
  ASSIGN_OR_RETURN(const uint32_t id, on->CreateQueue(priority));
  return Queue(core_, device, id);
}

absl::Status Session::DestroyQueue(const Queue& queue) {
  if (queue.id() == 0) return absl::InvalidArgumentError("a default queue lives as long as its session");
  return core_->IfOpen(queue.device())->DestroyQueue(queue.id());
}

absl::StatusOr<HostBuffer> Session::AllocateHost(uint64_t bytes) {
  return HostBuffer::Allocate(core_, bytes);
}

absl::StatusOr<HostBuffer> HostBuffer::Allocate(const std::shared_ptr<client::Core>& core, uint64_t bytes) {
  HostBuffer buffer;
  if (bytes == 0) return buffer;
  ASSIGN_OR_RETURN(client::HostCache::Block* const block, core->AllocateHost(bytes));
  buffer.core_ = core;
  buffer.block_ = block;
  buffer.bytes_ = {block->address, bytes};
  return buffer;
}

bool Session::IsHostMemory(const void* address) const { return core_->IsHostMemory(address); }

absl::Status Session::Synchronize(uint32_t device) {
  RETURN_IF_ERROR(core_->CheckUsable());
  client::DeviceSession* const on = core_->IfOpen(device);
  return on == nullptr ? absl::OkStatus() : on->SynchronizeAll();
}

MemoryStats Session::Memory(uint32_t device) const {
  client::DeviceSession* const on = core_->IfOpen(device);
  return on == nullptr ? MemoryStats() : on->Memory();
}

absl::StatusOr<uint64_t> Session::FreeMemory(uint32_t device) const {
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device));
  return on->FreeMemory();
}

void Session::ResetPeakMemory(uint32_t device) {
  if (client::DeviceSession* const on = core_->IfOpen(device)) on->ResetPeakMemory();
}

void Session::ResetAccumulatedMemory(uint32_t device) {
  if (client::DeviceSession* const on = core_->IfOpen(device)) on->ResetAccumulatedMemory();
}

absl::Status Session::StartProfile(uint32_t device, uint64_t commands) {
  RETURN_IF_ERROR(core_->Open(device).status());
  return core_->StartProfile(device, commands);
}

absl::StatusOr<Profile> Session::StopProfile(uint32_t device) {
  RETURN_IF_ERROR(core_->Open(device).status());
  return core_->StopProfile(device);
}

absl::Status Session::SetNice(int nice) {
  if (nice < 0)
    return absl::InvalidArgumentError(absl::StrCat("nice ", nice, " is not allowed; use 0 to 19"));
  return core_->SetNice(static_cast<uint32_t>(nice));
}

absl::StatusOr<Ticket> Session::Share(const Buffer& buffer) {
  if (buffer.core_ != core_.get() || buffer.bytes_ == 0)
    return absl::InvalidArgumentError("a buffer without bytes, or of another session, cannot be shared");
  return core_->IfOpen(buffer.device_)->Share(buffer.handle_, buffer.bytes_);
}

absl::StatusOr<Buffer> Session::Attach(const Ticket& ticket) {
  ASSIGN_OR_RETURN(const uint32_t device, core_->FromDaemon(ticket.device));
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device));
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(const BufferHandle handle, on->Attach(ticket, bytes));
  return Buffer(core_.get(), device, handle, bytes);
}

absl::Status Session::ReturnTicket(const Ticket& ticket) {
  ASSIGN_OR_RETURN(const uint32_t device, core_->FromDaemon(ticket.device));
  ASSIGN_OR_RETURN(client::DeviceSession* const on, core_->Open(device));
  return on->ReturnTicket(ticket);
}

bool Session::SharesMemory() const { return core_->shares_memory(); }

void Session::ObserveCommands(CommandObserver* observer) { core_->Observe(observer); }

absl::Status Session::status() const { return core_->status(); }
bool Session::HasLostDaemon() const { return IsDaemonGone(core_->status()); }
bool Session::HasEnded() const { return core_->HasEnded(); }
const std::string& Session::address() const { return core_->address(); }
bool Session::started_daemon() const { return core_->started_daemon(); }

}  // namespace xpud
