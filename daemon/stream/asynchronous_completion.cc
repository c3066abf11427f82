#include "daemon/stream/asynchronous_completion.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "proto/ops/check.h"

namespace xpud::stream {
namespace {

// The work that a queue has in flight: as much as others may wait for, but enough to keep the device busy.
constexpr double kMaxAheadNs = 10e6, kMinInFlight = 8;
constexpr double kHostByteNs = 0.05;   // of a copy from or to the host: 20 GB/s
constexpr double kPeerByteNs = 0.005;  // of a copy between devices: 200 GB/s

double Bytes(const kernels::Operand& operand) {
  if (!operand.present || operand.immediate) return 0;
  return static_cast<double>(operand.numel()) * static_cast<double>(ops::SizeOf(operand.dtype));
}

InFlight::Words& ClearedWords(const HostAccess& host, uint32_t queue) {
  InFlight::Words& words = *host.Words(queue);
  words = {};
  return words;
}

}  // namespace

AsynchronousCompletion::AsynchronousCompletion(const Context& context, executor::DeviceQueue& queue,
                                               uint32_t id)
    : Completion(context, queue, id),
      in_flight_(ClearedWords(context.host, id), context.host.OnDevice(context.host.Words(id))),
      lineage_(context.buffers, context.notes) {
  queue.Watch(&context.host.Words(id)->done);
}

absl::Status AsynchronousCompletion::Submitted(uint64_t sequence, uint64_t sent_ns, bool takes_long) {
  submitted_ = sequence;
  if (unfenced_.sent_ns == 0) {
    unfenced_.sent_ns = sent_ns;
    unfenced_.arrived_ns = sent_ns - std::min(context_.work.waited_ns, sent_ns);
  }
  ++unfenced_.commands;
  ++commands_in_flight_;
  CountInFlight();
  if (uint64_t& since = context_.work.occupied_since_ns; since == 0) since = sent_ns;
  return takes_long ? Fence() : absl::OkStatus();
}

void AsynchronousCompletion::CountInFlight() {
  const double ideal_ns = std::exchange(ideal_ns_, 0);
  if (ideal_ns == 0) return;
  const uint64_t predicted_ns = context_.prediction.Corrected(ideal_ns);
  const bool is_long = predicted_ns >= DeviceWork::kLongNs;
  unfenced_.alone &= context_.state.in_flight_ns == context_.work.in_flight_ns;
  unfenced_.ideal_ns += ideal_ns;
  unfenced_.predicted_ns += predicted_ns;
  unfenced_.long_commands += is_long;
  in_flight_ns_ += predicted_ns;
  long_in_flight_ += is_long;
  context_.work.in_flight_ns += predicted_ns;
  context_.work.long_in_flight += is_long;
  context_.work.apart = queue_.apart();
  context_.state.in_flight_ns += predicted_ns;
}

void AsynchronousCompletion::Ended(uint64_t predicted_ns, uint64_t long_commands) {
  in_flight_ns_ -= predicted_ns;
  long_in_flight_ -= long_commands;
  context_.work.in_flight_ns -= predicted_ns;
  context_.work.long_in_flight -= long_commands;
  context_.state.in_flight_ns -= predicted_ns;
}

absl::Status AsynchronousCompletion::Fence() {
  if (fenced_ == submitted_) return absl::OkStatus();
  if (absl::Status written = WriteFence(in_flight_.done_word()); !written.ok()) return written;
  unfenced_.last = submitted_;
  fenced_work_.push_back(std::exchange(unfenced_, {}));
  context_.busy_queues |= uint64_t{1} << id_;
  return absl::OkStatus();
}

absl::Status AsynchronousCompletion::LastFence(uint64_t sequence) {
  last_fence_ = true;
  submitted_ = sequence;
  return Fence();
}

bool AsynchronousCompletion::Poll(uint64_t now_ns) {
  const uint64_t done = in_flight_.Done();
  if (queue_.HasTrouble()) [[unlikely]]
    HandleTrouble();
  if (done == completed_) return false;
  CountTime(done, now_ns);
  queue_.Completed(done);
  in_flight_.Advance(
      done,
      [&](std::span<const uint64_t> suspects, uint64_t word, const Reporter& reporter) {
        const memory::Fault fault = context_.errors.Raise(id_, suspects.front(), ErrorOf(word, reporter));
        for (const uint64_t sequence : suspects) lineage_.Spoil(sequence, fault);
      },
      [&](const memory::Block& block) { context_.state.pool->Free(block); });
  lineage_.Forget(in_flight_.has_reporters() ? done : UINT64_MAX);
  completed_ = done;
  // The number of the last fence may be that of a client's command that was not run.
  if (!last_fence_)
    std::atomic_ref<uint64_t>(*context_.transport.CompletedWord(id_)).store(done, std::memory_order_release);
  context_.counters.commands_completed = std::max(context_.counters.commands_completed, done);
  if (done == fenced_) context_.busy_queues &= ~(uint64_t{1} << id_);
  return true;
}

// The device lost work of the queue, or could not take it.
void AsynchronousCompletion::HandleTrouble() {
  const executor::DeviceQueue::Trouble trouble = queue_.TakeTrouble();
  if (trouble.error.ok()) return;
  const memory::Fault fault = context_.errors.Raise(id_, fenced_, trouble.error);
  for (const auto& [address, bytes] : trouble.spoilt) {
    const auto spoil = [&, address = address, bytes = bytes](memory::Allocation& allocation, uint64_t size) {
      const uint64_t begin = reinterpret_cast<uint64_t>(allocation.block.address);
      if (begin == 0 || begin + size <= address || address + bytes <= begin) return;
      allocation.poison = memory::Poison::kNone;  // whatever it had
      context_.buffers.Spoil(allocation, fault);
    };
    context_.buffers.ForEach([&](handles::Buffer& buffer) {
      if (!buffer.own.is_shared) spoil(buffer.own, buffer.bytes);
    });
    // The session may have freed its buffer of what it shares.
    context_.state.shared->ForEach(
        [&](memory::SharedAllocation& allocation) { spoil(allocation, allocation.bytes); });
    context_.lends.ForEachUnfinished(spoil);
  }
}

void AsynchronousCompletion::CountTime(uint64_t done, uint64_t now_ns) {
  uint64_t sent = 0, commands = 0, predicted_ns = 0;
  double ideal_ns = 0;
  bool ran_alone = true;
  for (; !fenced_work_.empty() && fenced_work_.front().last <= done; fenced_work_.pop_front()) {
    const Work& work = fenced_work_.front();
    if (sent == 0) sent = work.sent_ns;
    if (work.commands != 0)
      context_.counters.latency.Add(now_ns - std::min(work.arrived_ns, now_ns), work.commands);
    commands += work.commands;
    ideal_ns += work.ideal_ns;
    predicted_ns += work.predicted_ns;
    ran_alone &= work.alone;
    Ended(work.predicted_ns, work.long_commands);
  }
  context_.work.ended_ns = now_ns;
  if (commands == 0) return;
  const bool alone = context_.state.in_flight_ns == context_.work.in_flight_ns;
  const uint64_t took =
      context_.state.time.Ended(context_.time, {sent, now_ns, commands, context_.prediction.Fair(ideal_ns)},
                                context_.state.in_flight_ns, alone);
  if (alone && ran_alone && ideal_ns != 0) {
    context_.prediction.Learn(ideal_ns, took);
    context_.state.predicted_took_ns += took;
    context_.state.prediction_error_ns += std::max(took, predicted_ns) - std::min(took, predicted_ns);
  }
  commands_in_flight_ -= commands;
  command_ns_ += (static_cast<double>(took) / static_cast<double>(commands) - command_ns_) / 8;
  max_in_flight_ = static_cast<uint64_t>(
      std::clamp<double>(kMaxAheadNs / std::max(command_ns_, 1.0), kMinInFlight, kMaxInFlight));
}

void AsynchronousCompletion::Retire(const memory::Block& block, uint64_t sequence) {
  if (sequence <= completed_)
    context_.state.pool->Free(block);
  else
    in_flight_.Retire(block, sequence);
}

void AsynchronousCompletion::FreeRetired() {
  in_flight_.Drain([&](const memory::Block& block) { context_.state.pool->Free(block); });
}

uint64_t* AsynchronousCompletion::TakeErrorWord(uint64_t sequence, const kernels::OpCall& call) {
  if (lineage_.is_full()) return nullptr;
  if (!MayReport(call)) return &unused_error_word_;
  // With the address of what it writes, only updates of the same memory share a word.
  const auto target = call.outputs.empty() ? 0 : reinterpret_cast<uint64_t>(call.outputs.front().data);
  return in_flight_.TakeErrorSlot(sequence, (ops::WordingOf(call) ^ target) * 0x9e3779b97f4a7c15,
                                  [&] { return Reporter::Of(call); });
}

void AsynchronousCompletion::ReturnErrorWord(const kernels::OpCall& call) {
  if (MayReport(call)) in_flight_.ReturnErrorSlot();
}

// It takes long with more than 64 MiB to read and write, or more than 2^33 operations: tens of microseconds
// or more on a large GPU.
uint64_t AsynchronousCompletion::IdealNs(const kernels::OpCall& call) {
  constexpr double kBytes = 1 << 26, kOperations = 8.6e9;
  double bytes = 0, operations = 0;
  for (const auto& operands : {call.outputs, call.inputs}) {
    for (const kernels::Operand& operand : operands) bytes += Bytes(operand);
  }
  if (ops::DescriptorOf(*call.row).cost != nullptr) operations = ops::CostOf(call);
  const bool half = !call.outputs.empty() && ops::SizeOf(call.outputs.front().dtype) == 2;
  planned_ = {context_.prediction.Ideal(bytes, operations, half), bytes > kBytes || operations > kOperations};
  return static_cast<uint64_t>(planned_.ideal_ns);
}

Completion::Launch AsynchronousCompletion::Launched(uint64_t sequence, const CheckedOp& op) {
  if (in_flight_.has_reporters()) lineage_.Note(sequence, op);
  ideal_ns_ = planned_.ideal_ns;
  return {.takes_long = planned_.takes_long, .fault = std::nullopt};
}

void AsynchronousCompletion::Moved(uint64_t bytes, Way way) {
  const auto moved = static_cast<double>(bytes);
  if (way == Way::kWithin)
    ideal_ns_ = context_.prediction.Ideal(2 * moved, 0, /*half=*/false);
  else
    ideal_ns_ = Prediction::kLaunchNs + moved * (way == Way::kHost ? kHostByteNs : kPeerByteNs);
}

void AsynchronousCompletion::Copied(uint64_t sequence, handles::Buffer* source, handles::Buffer& target,
                                    bool fills) {
  if (in_flight_.has_reporters()) lineage_.NoteCopy(sequence, source, target, fills);
}

absl::Status AsynchronousCompletion::WriteTimestamp(uint32_t slot) {
  return queue_.WriteTimestamp(context_.host.OnCompletionPage(context_.transport.TimestampWord(slot)));
}

}  // namespace xpud::stream
