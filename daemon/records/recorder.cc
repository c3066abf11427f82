#include "daemon/records/recorder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/ops/families/gather.h"
#include "proto/ops/family.h"

namespace xpud::records {
namespace {

TensorShape ShapeOf(const ops::Operand& operand) {
  TensorShape shape;
  shape.dtype = static_cast<uint8_t>(operand.dtype);
  shape.rank = operand.rank;
  for (size_t d = 0; d < TensorShape::kSizes; ++d) {  // those beyond the rank are never read
    constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
    shape.sizes[d] = static_cast<uint32_t>(std::min(static_cast<uint64_t>(operand.sizes[d]), kMost));
  }
  return shape;
}

uint64_t BytesOf(const ops::Operand& operand) {
  return operand.is_tensor() ? static_cast<uint64_t>(operand.numel()) * ops::SizeOf(operand.dtype) : 0;
}

// Returns the operand of which only the rows that are gathered are read, or nullptr.
const ops::Operand* TableOf(const ops::Call& call) {
  switch (call.row->family) {
    case ops::Family::kEmbedding:
      return ops::Read<ops::EmbeddingCall>(call).weight;
    case ops::Family::kGather:
      return ops::Read<ops::GatherCall>(call).self;
    default:
      return nullptr;
  }
}

// The client's name of its loop kernel, else that of the first launch. REQUIRES: there are launches.
std::string_view KernelNameOf(const Running& command) {
  const ops::KernelOfCall* const kernel = command.call == nullptr ? nullptr : command.call->kernel;
  return kernel != nullptr ? kernel->name : (*command.launches)[0].kernel().entry;
}

void SetRun(CommandRecord& record, const executor::WorkTime& time) {
  if (!std::exchange(record.exact, true)) {
    record.began_ns = time.began_ns;
    record.ended_ns = time.ended_ns;
    record.device_ns = 0;
  }
  record.began_ns = std::min(record.began_ns, time.began_ns);
  record.ended_ns = std::max(record.ended_ns, time.ended_ns);
  record.device_ns += time.ended_ns - time.began_ns;
}

void SetAppended(CommandRecord& record, const executor::WorkTime& time) {
  if (record.appended_ns == 0) record.appended_ns = time.began_ns;
  const uint64_t taken = time.ended_ns - std::min(record.appended_ns, time.ended_ns);
  record.append_ns = static_cast<uint32_t>(std::min<uint64_t>(taken, UINT32_MAX));
  record.replayed |= time.what == executor::WorkTime::What::kReplayed;
}

// On a large GPU, for want of something better. Only ratios matter.
double ExpectedNs(const CommandRecord& record) {
  constexpr double kLaunchNs = 2000, kBytesPerNs = 1000, kOperationsPerNs = 50'000;
  return kLaunchNs + static_cast<double>(record.bytes) / kBytesPerNs +
         static_cast<double>(record.operations) / kOperationsPerNs;
}

}  // namespace

std::string Describe(Stall stall, const ops::Row* row) {
  std::string text = stall == Stall::kNone ? "its turn" : kStallNames[static_cast<size_t>(stall)];
  if (row != nullptr) text += " (" + std::string(row->aten.substr(0, row->aten.find('|'))) + ")";
  return text;
}

std::unique_ptr<Profile> Recorder::Start(Audience audience, size_t capacity, uint64_t until_ns) {
  auto started = std::make_unique<Profile>(capacity);
  started->until_ns = until_ns;
  return std::exchange(profiles_[static_cast<size_t>(audience)], std::move(started));
}

void Recorder::Stop(Audience audience) {
  if (const auto& profile = profiles_[static_cast<size_t>(audience)]) profile->stopped = true;
}

void Recorder::Note(const Running& command, uint64_t now_ns) {
  FlightRecord& record = flight_.Next();
  record.sequence = command.sequence;
  record.run_ns = now_ns;
  record.copied_bytes = command.copied_bytes;
  record.row = command.row == nullptr ? uint16_t{0} : command.row->number;
  record.kind = command.header.kind;
  record.queue = static_cast<uint8_t>(command.header.queue);
  record.refused = command.refused;
  record.launches =
      command.launches == nullptr ? uint16_t{0} : static_cast<uint16_t>(command.launches->size());
  const bool runs_loop = command.call != nullptr && command.call->kernel != nullptr;
  record.kernel = runs_loop ? flight_names_.NumberOf(command.call->kernel->name, kFlightNameBytes) : 0;
  record.has_output = command.call != nullptr && !command.call->outputs.empty();
  if (record.has_output) record.output = ShapeOf(command.call->outputs.front());
  if (command.timed) [[unlikely]]
    NoteTimes(command);
}

void Recorder::NoteTimes(const Running& command) {
  CommandRecord record{};
  record.sequence = command.sequence;
  record.published = command.published_ns.has_value();
  record.arrived_ns = std::min(command.published_ns.value_or(arrived_ns_), command.decoded_ns);
  record.decoded_ns = command.decoded_ns;
  record.submitted_ns = command.launched_ns;
  if (synchronous_ && command.launched_ns != 0) {
    record.began_ns = command.launched_ns;
    record.ended_ns = command.returned_ns;
    record.device_ns = command.launching_ns;
    record.exact = true;
  }
  record.bytes = command.copied_bytes;
  record.memory_bytes = command.memory_bytes;
  record.kind = command.header.kind;
  record.queue = static_cast<uint8_t>(command.header.queue);
  record.stall = command.stall;
  record.refused = command.refused;
  if (command.row != nullptr) record.row = command.row->number;
  if (command.launches != nullptr && command.launches->size() != 0) {
    record.launches = static_cast<uint16_t>(command.launches->size());
  }
  if (command.call != nullptr) {
    record.operations = static_cast<float>(ops::CostOf(*command.call));
    const ops::Operand* const table = TableOf(*command.call);
    // What is read of a table is as large as the output.
    if (table != nullptr) record.operations = static_cast<float>(command.call->outputs.front().numel());
    size_t tensors = 0;
    for (const auto& operands : {command.call->outputs, command.call->inputs}) {
      for (const ops::Operand& operand : operands) {
        if (!operand.is_tensor()) continue;
        record.bytes += BytesOf(&operand == table ? command.call->outputs.front() : operand);
        if (tensors < CommandRecord::kTensors) record.shapes[tensors] = ShapeOf(operand);
        ++tensors;
      }
    }
    record.tensors = static_cast<uint8_t>(std::min<size_t>(tensors, UINT8_MAX));
  }
  for (const auto& profile : profiles_) {
    if (profile == nullptr || profile->stopped) continue;
    if (!command.range.empty()) record.kernel = NumberOf(*profile, command.range);
    if (record.launches != 0) record.kernel = NumberOf(*profile, KernelNameOf(command));
    if (!synchronous_ && record.submitted_ns != 0)
      profile->unfinished.push_back({profile->records.added(), record.sequence, record.queue});
    if (command.first_work != command.end_of_work) {
      std::deque<Profile::Work>& work = profile->work[record.queue];
      // A queue that was destroyed and made anew counts from elsewhere.
      if (!work.empty() && command.first_work < work.back().end) work.clear();
      if (work.size() == Profile::kMaxWork) work.pop_front();
      work.push_back({profile->records.added(), command.first_work, command.end_of_work});
    }
    profile->records.Add(record);
  }
}

void Recorder::SetTime(Profile& profile, uint32_t queue, const executor::WorkTime& time) {
  const auto of_queue = profile.work.find(queue);
  if (of_queue == profile.work.end()) return;
  const std::deque<Profile::Work>& work = of_queue->second;
  auto owner = std::ranges::upper_bound(work, time.number, {}, &Profile::Work::first);
  if (owner != work.begin()) --owner;
  for (; owner != work.end() && owner->first < time.number + time.count; ++owner) {
    if (owner->end <= time.number || owner->number < profile.records.first()) continue;
    CommandRecord& record = profile.records[owner->number];
    time.what == executor::WorkTime::What::kRan ? SetRun(record, time) : SetAppended(record, time);
  }
}
// The device reports the ends of several commands at once. They share the time since they were sent, or since
// the work before them ended, by what they were expected to take.
void Recorder::Finish(Profile& profile, uint32_t queue, uint64_t sequence, uint64_t now_ns) {
  std::vector<CommandRecord*> ended;
  double expected = 0;
  std::erase_if(profile.unfinished, [&](const Profile::Unfinished& each) {
    if (each.queue != queue || each.sequence > sequence) return false;
    if (each.number < profile.records.first() || profile.records[each.number].exact) return true;
    ended.push_back(&profile.records[each.number]);
    expected += ExpectedNs(*ended.back());
    return true;
  });
  if (ended.empty()) return;
  const uint64_t from = std::min(std::max(ended[0]->submitted_ns, profile.ended_ns), now_ns);
  double passed = 0;
  for (CommandRecord* const record : ended) {
    const auto at = [&] {
      return from + static_cast<uint64_t>(static_cast<double>(now_ns - from) * (passed / expected));
    };
    record->began_ns = at();
    passed += ExpectedNs(*record);
    record->ended_ns = record == ended.back() ? now_ns : at();
    record->device_ns = record->ended_ns - record->began_ns;
  }
  profile.ended_ns = now_ns;
}

}  // namespace xpud::records
