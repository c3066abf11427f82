// Runs a session's ops on one device: decodes, checks, plans and submits them. REQUIRES: the lane's thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/stream/lends.h"
#include "daemon/stream/memory.h"
#include "daemon/stream/op.h"
#include "daemon/stream/op_checker.h"
#include "daemon/stream/queue_errors.h"
#include "daemon/stream/rerun.h"

namespace xpud::stream {

class OpStream {
 public:
  OpStream(DeviceState& state, handles::BufferTable& buffers, const handles::KernelTable& kernels,
           QueueErrors& errors, Memory& memory, Rerun& rerun, kernels::KernelOwner& owner, const Lends& lends)
      : state_(state),
        owner_(owner),
        buffers_(buffers),
        errors_(errors),
        memory_(memory),
        rerun_(rerun),
        lends_(lends),
        checker_(state, buffers, kernels) {}

  // Runs one op. An error is a breach of protocol; an op that is refused raises an error on its queue and
  // poisons its outputs. Until an op that was stopped is done, call this with the same arguments.
  absl::StatusOr<Outcome> Run(std::span<const std::byte> bytes, Queue& queue, Command& command);

  // The queue in which an op was stopped; nullptr: there is none.
  const Queue* stopped() const { return stopped_; }
  // Frees what an op uses that was stopped. The session is ending.
  void Drop();

 private:
  // Launches what was checked, or stopped before.
  absl::StatusOr<Outcome> Launch(Queue& queue, Command& command);
  // Whether it would write what another device copies.
  bool WritesLent() const;
  // Gives outputs blocks of their own where others have theirs, too: see Memory::TakeOwn. Returns whether the
  // op may go on.
  absl::StatusOr<bool> TakeOwn(Queue& queue, Command& command);
  // The operands are in the blocks that were taken.
  void MoveOperands();
  // Whether what it uses is on the device. Then it stays there until the op is done.
  absl::StatusOr<bool> Hold(const Queue& queue, const Command& command);
  // Plans the op and submits its launches.
  absl::StatusOr<Outcome> PlanAndSubmit(Queue& queue, const kernels::OpCall& call, Command& command);
  // Raises the error and poisons the outputs.
  Outcome Refuse(const Queue& queue, Command& command, const absl::Status& why, bool resolved);
  void PoisonOutputs(memory::Fault fault);
  void MarkOutputsWritten(const Command& command, std::optional<memory::Fault> fault);
  void FreeWorkspace(Queue& queue, uint64_t sequence);

  DeviceState& state_;
  kernels::KernelOwner& owner_;
  handles::BufferTable& buffers_;
  QueueErrors& errors_;
  Memory& memory_;
  Rerun& rerun_;
  const Lends& lends_;
  OpChecker checker_;

  // Scratch of the op being run.
  DecodedOp decoded_;
  CheckedOp checked_;
  PlannedOp planned_;
  std::vector<memory::Residency::Operand> held_;
  Queue* stopped_ = nullptr;  // where an op was stopped, to which the scratch still belongs
};

}  // namespace xpud::stream
