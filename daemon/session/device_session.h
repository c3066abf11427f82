// A client's session on one device: takes commands from the ring, checks them, and has them executed. Nothing
// that a client sends can touch another session: handles are looked up in this session's own tables, every
// view is checked against its buffer, and a breach of protocol closes this session only. Belongs to the
// device's lane. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/handles/buffer_table.h"
#include "daemon/handles/host_memory.h"
#include "daemon/handles/kernel_table.h"
#include "daemon/records/recorder.h"
#include "daemon/session/command_reader.h"
#include "daemon/session/session.h"
#include "daemon/session/turn_meter.h"
#include "daemon/stream/announcer.h"
#include "daemon/stream/copy_stream.h"
#include "daemon/stream/device_state.h"
#include "daemon/stream/host_access.h"
#include "daemon/stream/lends.h"
#include "daemon/stream/memory.h"
#include "daemon/stream/op_stream.h"
#include "daemon/stream/queue_errors.h"
#include "daemon/stream/queue_table.h"
#include "daemon/stream/rerun.h"
#include "daemon/tenant/counters.h"
#include "daemon/tenant/time_grant.h"
#include "proto/transport/transport.h"
#include "proto/wire/commands.h"
#include "proto/wire/decode.h"

namespace xpud::session {

class DeviceSession final : memory::SharedMemory::Sender, memory::User, stream::Merger::Participant {
 public:
  // Opens `device` for the session, and makes its queue 0. `priority`: of its queues on the device.
  static absl::StatusOr<std::unique_ptr<DeviceSession>> Create(
      std::shared_ptr<Session> session, uint32_t device, stream::DeviceState& state,
      std::shared_ptr<transport::ServerTransport> transport, handles::TableSpace& space,
      PriorityClass priority = PriorityClass::kInteractive);
  // The class has changed. Queues with work on the device change there when it is done.
  void SetPriority(PriorityClass priority);
  // Gives everything back. REQUIRES: End returned true, or the device does nothing more for it.
  ~DeviceSession();
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;

  enum class Progress {
    kIdle,     // no commands
    kWorked,   // ran some; call again
    kStalled,  // the next command waits for a kernel to compile, for another queue, or for the device
  };
  // Runs commands until there are none or about `slice_ns` have passed. An error is a breach of protocol: the
  // caller closes the session.
  // `window`: what it may have on an asynchronous device.
  absl::StatusOr<Progress> Run(uint64_t slice_ns, const stream::InFlightWindow& window = {});
  // Takes what the device has reported. Run does so, too.
  void Poll();
  // Whether the device works for it, will take its next command, or it waits for another device. Nothing
  // wakes the lane then, so Run must be called again soon.
  bool under_way() const { return announcer_.IsUnderWay() || awaits_device_ || awaits_peer_; }
  // Whether its next command waits until less of the session is on the device.
  bool is_full() const { return awaits_device_; }
  // Whether its next command waits for another device of the session, another session, or memory, and nothing
  // else is under way.
  bool awaits_peer_only() const { return awaits_peer_ && !announcer_.IsUnderWay() && !awaits_device_; }
  // The lane woke up. No command had waited: the first one woke it.
  void Awake(uint64_t now_ns) {
    transport_->Awake();
    if (reader_.empty()) meter_.SawNone(now_ns);
  }
  // Whether commands have arrived that it can run. A session that waits runs none, whatever arrives.
  bool HasCommands() { return reader_.empty() && transport_->HasCommands(); }
  // Must not run in this round. `waits`: because of what its tenant is granted, whoever else runs; then it is
  // no stall. Returns whether it has commands.
  absl::StatusOr<bool> HoldBack(uint64_t now_ns, bool waits);
  // How long it was held back in all, as the policy counts it. At the end of the session.
  void CountHeld(const HeldTimes& held) { counters_.held = held; }
  // Takes no more commands. Returns whether the device does nothing more for it; call it again until then.
  bool End();
  // Work of this session is lost, in queues that say so.
  void Abandon();

  // As DeviceHostMemories::Share.
  absl::Status ShareHostMemory(uint32_t id,
                               const std::shared_ptr<const handles::HostMemories::Memory>& memory,
                               const handles::DeviceHostMemories::Done& done) {
    return memories_.Share(id, memory, done);
  }

  uint64_t id() const { return session_->id(); }
  const Peer& peer() const { return session_->peer(); }
  const SessionCounters& counters() const { return counters_; }
  const stream::DeviceWork& work() const { return work_; }
  memory::Ledger::Account& account() const { return memory_.account(); }
  uint64_t allocated_bytes() const { return memory_.allocated_bytes(); }
  // Of these: shared memory, which the tenant is charged for.
  uint64_t shared_bytes() const { return memory_.shared_bytes(); }
  uint64_t peak_bytes() const { return memory_.peak_bytes(); }
  size_t buffer_count() const { return buffers_.live(); }
  int queue_count() const { return queues_.count(); }
  // Kernels of this client that wait to be compiled, or are being compiled. Those that a call waits for are
  // usually among those that were started ahead.
  uint64_t kernels_pending() const { return std::max(kernel_owner_->pending(), ahead_owner_->pending()); }
  // The last Run that worked, on the steady clock.
  uint64_t slice_began_ns() const { return meter_.began_ns(); }
  uint64_t slice_ended_ns() const { return meter_.ended_ns(); }
  // What cores that nothing else used have done for it before that slice, as time of the device.
  uint64_t helped_ns() const { return helped_ns_; }
  transport::ServerTransport& transport() { return *transport_; }
  // Records when the device ran commands of the session, as far as it has said that.
  void TakeTimes();
  records::Recorder& recorder() { return *recorder_; }
  const records::Recorder& recorder() const { return *recorder_; }
  // At the end of the session, for the archive. No command runs afterwards.
  std::unique_ptr<records::Recorder> TakeRecorder() { return std::move(recorder_); }
  // What is under way: see WaitState.
  struct WaitState {
    uint64_t since_ns = 0;  // since when nothing of the session has run or ended; 0: nothing is under way
    // What its next command waits for; kNone: for its turn, or there is none.
    records::Stall stall = records::Stall::kNone;
    bool has_commands = false;      // some were taken and not run
    bool device_works = false;      // commands are on the device
    const ops::Row* row = nullptr;  // of the next command, if it is an op that was looked at
  };
  WaitState wait_state() const;

 private:
  using Outcome = stream::Outcome;
  using Bytes = std::span<const std::byte>;

  DeviceSession(std::shared_ptr<Session> session, uint32_t device, stream::DeviceState& state,
                std::shared_ptr<transport::ServerTransport> transport, handles::TableSpace& space,
                PriorityClass priority, stream::HostAccess access);
  // Runs the commands that were taken, until one stalls or about `slice_ns` have passed. `now_ns`: the last
  // reading of the clock.
  absl::StatusOr<Progress> RunCommands(uint64_t& now_ns, uint64_t slice_ns,
                                       const stream::InFlightWindow& window);
  void Prepare(const wire::CommandHeader& header, bool timed);
  // A profiled command has run, in this queue; null: it made or destroyed its queue.
  void NoteWork(const stream::Queue* queue);
  Outcome Stalls(records::Stall why) {
    command_.stall = why;
    return Outcome::kStalled;
  }
  // No commands are left at `now_ns`.
  absl::StatusOr<Progress> RestIdle(uint64_t now_ns);
  // Runs the command that `header` starts. Returns as OpStream::Run.
  absl::StatusOr<Outcome> RunCommand(const wire::CommandHeader& header);
  bool EndWork();
  // Whether the device does nothing more for the session.
  bool EndDeviceWork();
  void CloseQueues();
  uint64_t LostQueues();  // bit q
  // Ends what was copied between devices meanwhile.
  void SettleLoans();
  // The next command waits, as command_.stall says.
  absl::Status Stalled();
  absl::Status Announce();
  absl::Status OpenQueue(uint32_t id);

  absl::StatusOr<Outcome> Allocate(Bytes bytes, stream::Queue& queue);
  absl::StatusOr<Outcome> Free(Bytes bytes);
  absl::StatusOr<Outcome> Reserve(Bytes bytes);
  absl::StatusOr<Outcome> Share(Bytes bytes, stream::Queue& queue);
  absl::StatusOr<Outcome> Attach(Bytes bytes);
  // Writes an answer to a command's slots. Returns kDone.
  Outcome Answer(const uint32_t (&slots)[wire::kAnswerSlots], wire::Answer answer,
                 std::array<uint64_t, wire::kAnswerSlots - 1> words = {});
  // For SharedMemory and Residency.
  bool HasCompleted(const memory::Mark& mark) const override;
  std::vector<memory::Mark> Unfinished() override;
  bool IsAtWork() const override { return !reader_.empty() || announcer_.IsUnderWay(); }
  // For Merger.
  stream::Memory& memory() override { return memory_; }
  handles::BufferTable& buffers() override { return buffers_; }
  bool is_stopped() const override { return ops_.stopped() != nullptr; }
  // Gives a buffer that is to be shared a block of its own, if it is merged. Returns kDone, or kStalled.
  absl::StatusOr<Outcome> PartShared(handles::Buffer& buffer, stream::Queue& queue);
  // What the next commands use, as far as they were taken: memory that has left the device comes in time.
  void LookAhead();
  absl::Status AwaitMemory();
  absl::StatusOr<Outcome> CopyFrom(Bytes bytes, stream::Queue& queue);
  absl::StatusOr<Outcome> ReleaseMemory(Bytes bytes);
  absl::StatusOr<Outcome> DefineKernel(Bytes bytes, const stream::Queue& queue);
  absl::StatusOr<Outcome> ForgetKernel(Bytes bytes);
  absl::StatusOr<Outcome> PrepareKernel(Bytes bytes);
  absl::StatusOr<Outcome> CreateQueue(Bytes bytes, uint32_t id);
  absl::StatusOr<Outcome> DestroyQueue(Bytes bytes, stream::Queue& queue);
  absl::StatusOr<Outcome> Timestamp(Bytes bytes, stream::Queue& queue);
  absl::StatusOr<Outcome> Wait(Bytes bytes);
  absl::StatusOr<Outcome> WaitForQueue(const wire::WaitCommand& command);  // of this device
  absl::StatusOr<Outcome> ClearError(Bytes bytes, stream::Queue& queue);

  const std::shared_ptr<Session> session_;
  const uint32_t device_;
  stream::DeviceState& state_;
  const std::shared_ptr<transport::ServerTransport> transport_;
  const stream::HostAccess access_;
  PriorityClass priority_;

  SessionCounters counters_;
  TurnMeter meter_;
  uint64_t helped_ns_ = 0;
  stream::DeviceWork work_;  // of an asynchronous device
  stream::DeviceTime::Account time_;
  stream::Prediction prediction_;
  uint64_t busy_queues_ = 0;  // bit q: see Completion::Context
  uint64_t notes_ = 0;        // see stream::Lineage
  CommandReader reader_;
  handles::BufferTable buffers_;
  handles::KernelTable kernels_;
  const std::shared_ptr<kernels::KernelOwner> kernel_owner_, ahead_owner_;
  handles::DeviceHostMemories memories_;
  stream::QueueErrors errors_;
  stream::Lends lends_;
  stream::Borrows borrows_;
  stream::QueueTable queues_;
  stream::Announcer announcer_;
  const std::unique_ptr<stream::Rerun> rerun_;
  std::unique_ptr<records::Recorder> recorder_;
  stream::Memory memory_;
  stream::OpStream ops_;
  stream::CopyStream copies_;

  wire::DecodedPrepare prepare_;  // scratch
  wire::DecodedExecute ahead_;    // scratch
  uint64_t looked_ahead_ = 0;     // the command that waited at the last LookAhead
  uint64_t awaited_loan_ = 0;     // the command that last waited for a loan

  stream::Command command_;     // being run
  uint64_t sequence_ = 0;       // of the last command that was run
  uint32_t current_queue_ = 0;  // and its queue
  uint64_t progress_ns_ = 0;    // when a command last ran or ended
  bool awaits_device_ = false;  // the next command's queue has no room; nothing wakes the lane once it has
  // The next command waits for another device, another session, or memory that has left the device.
  bool awaits_peer_ = false;
  bool tenant_waits_ = false;  // its tenant may not run
  bool ending_ = false;        // takes no more commands
  bool device_ended_ = false;  // seen by EndWork
};

}  // namespace xpud::session
