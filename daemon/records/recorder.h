// Records the commands of one session on one device. The flight recorder keeps the last commands of every
// session, so that after a fault one can see what ran; it costs some nanoseconds a command. A profile keeps
// more, while somebody wants it. Both keep the newest records. REQUIRES: the lane's thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/executor/api/work_time.h"
#include "daemon/records/name_table.h"
#include "daemon/records/record.h"
#include "kernels/api/launch.h"
#include "kernels/api/op_call.h"
#include "proto/base/check.h"
#include "proto/base/mapping.h"

namespace xpud::records {

// The newest `capacity` records, in pieces that are mapped as records come. Not from the heap: it would keep
// most of a large profile's memory after its end.
template <typename Record>
class Ring {
 public:
  // REQUIRES: capacity > 0.
  explicit Ring(size_t capacity) : capacity_(capacity) {}

  void Add(const Record& record) { Next() = record; }
  // The place of the next record, which has the contents of an old one.
  Record& Next() {
    const size_t at = at_;
    at_ = at + 1 == capacity_ ? 0 : at + 1;
    ++added_;
    if (at / kPiece == pieces_.size()) [[unlikely]]
      AddPiece();
    return pieces_[at / kPiece].records[at % kPiece];
  }
  uint64_t added() const { return added_; }  // those that were overwritten included
  // The number of the oldest one.
  uint64_t first() const { return added_ < capacity_ ? 0 : added_ - capacity_; }
  // REQUIRES: first() <= number < added().
  const Record& operator[](uint64_t number) const { return At(number); }
  Record& operator[](uint64_t number) { return At(number); }
  size_t capacity() const { return capacity_; }
  // Keeps `count` of the newest, or those that there are, and takes memory for no more. REQUIRES: count > 0.
  void Shrink(size_t count) {
    const uint64_t kept = std::min<uint64_t>(count, added_ - first());
    Ring shrunk(std::max<size_t>(kept, 1));
    shrunk.added_ = added_ - kept;
    shrunk.at_ = shrunk.added_ % shrunk.capacity_;
    while (shrunk.pieces_.size() * kPiece < kept) shrunk.AddPiece();
    for (uint64_t number = shrunk.added_; number < added_; ++number) shrunk.Add(At(number));
    *this = std::move(shrunk);
  }

 private:
  static_assert(std::is_trivially_destructible_v<Record>);
  static constexpr size_t kPiece = 512;
  struct Piece {
    Mapping memory;
    Record* records;
  };

  void AddPiece() {
    const size_t count = std::min(kPiece, capacity_ - pieces_.size() * kPiece);
    absl::StatusOr<Mapping> memory = Mapping::MapPrivate(count * sizeof(Record));
    XPUD_CHECK(memory.ok());
    auto* const records = reinterpret_cast<Record*>(memory->data());
    std::uninitialized_value_construct_n(records, count);
    pieces_.push_back({*std::move(memory), records});
  }
  Record& At(uint64_t number) const {
    const size_t at = number % capacity_;
    return pieces_[at / kPiece].records[at % kPiece];
  }

  size_t capacity_;
  std::vector<Piece> pieces_;
  size_t at_ = 0;  // added_ % capacity_
  uint64_t added_ = 0;
};

// What the lane knows of the command that it runs. Filled in stages.
struct Running {
  uint64_t sequence = 0;
  wire::CommandHeader header{};
  const kernels::OpCall* call = nullptr;          // of an op that was checked
  const ops::Row* row = nullptr;                  // of an op
  const kernels::LaunchList* launches = nullptr;  // of an op that was launched
  uint64_t copied_bytes = 0;
  std::string_view range;  // of a kRange: the name, until the command is noted
  bool refused = false;
  Stall stall = Stall::kNone;
  // Only while the session is profiled.
  bool timed = false;
  std::optional<uint64_t> published_ns = {};  // nullopt: about when Recorder::Arrived says
  uint64_t decoded_ns = 0, launched_ns = 0, returned_ns = 0;
  uint64_t launching_ns = 0;  // without the turns of others
  uint64_t memory_bytes = 0;  // that the session holds after it
  // Its pieces of work of its queue, as executor::DeviceQueue::appended counts them; none if they are equal.
  uint64_t first_work = 0, end_of_work = 0;

  // Work was appended to the device from `began` to `ended`, not for the first time if it was stopped before.
  void Launched(uint64_t began, uint64_t ended) {
    if (launched_ns == 0) launched_ns = began;
    returned_ns = ended;
    launching_ns += ended - began;
  }
};

// Whose profile it is: the operators', that of the user whose session it is, or the client's own. A session
// may have one of each, and none disturbs another.
enum class Audience : uint8_t { kOperators, kUser, kClient };
inline constexpr size_t kAudiences = 3;

struct Profile {
  // What all profiles on a device together may keep: 4 GiB.
  static constexpr uint64_t kMaxCommands = (uint64_t{4} << 30) / sizeof(CommandRecord);

  // What those of clients together may keep, and those of users: 1 GiB each.
  static constexpr uint64_t kMaxClientCommands = (uint64_t{1} << 30) / sizeof(CommandRecord);

  // What those of an audience may keep on a device.
  static constexpr uint64_t MostCommands(Audience audience) {
    return audience == Audience::kOperators ? kMaxCommands : kMaxClientCommands;
  }

  // What its names may take: as much as its records, within these limits. Commands with other names have
  // none.
  static constexpr uint64_t kMinNameBytes = uint64_t{64} << 10, kMaxNameBytes = uint64_t{4} << 20;
  static constexpr uint64_t NameBytes(size_t capacity) {
    return std::clamp<uint64_t>(capacity * sizeof(CommandRecord), kMinNameBytes, kMaxNameBytes);
  }
  // As how many commands a profile of `capacity` counts: its names' memory included.
  static constexpr uint64_t CountedCommands(size_t capacity) {
    return capacity + NameBytes(capacity) / sizeof(CommandRecord);
  }

  explicit Profile(size_t capacity) : records(capacity) {}

  // As how many commands what it keeps counts.
  uint64_t counted_commands() const {
    return records.added() - records.first() + names.bytes() / sizeof(CommandRecord);
  }

  bool IsRunning(uint64_t now_ns) {
    stopped |= now_ns >= until_ns;
    return !stopped;
  }

  // A command whose end is not known yet.
  struct Unfinished {
    uint64_t number;  // of its record
    uint64_t sequence;
    uint32_t queue;
  };

  // A command whose times the device may report.
  struct Work {
    uint64_t number;  // of its record
    uint64_t first, end;
  };
  // The last ones of a queue. The device's reports come tens of milliseconds later, and not in order.
  static constexpr size_t kMaxWork = 1 << 16;

  Ring<CommandRecord> records;
  uint64_t until_ns = UINT64_MAX;  // then it stops by itself
  bool stopped = false;
  NameTable names;  // of kernels and ranges
  std::deque<Unfinished> unfinished;
  absl::flat_hash_map<uint32_t, std::deque<Work>> work;  // by queue
  uint64_t ended_ns = 0;                                 // the last command that is known to have
};

class Recorder {
 public:
  static constexpr size_t kFlightRecords = 10'000, kEndedFlightRecords = 1'000;
  static constexpr uint64_t kFlightNameBytes = uint64_t{64} << 10;

  // `synchronous`: whether work is complete when the call that appends it returns.
  explicit Recorder(bool synchronous) : synchronous_(synchronous), flight_(kFlightRecords) {}

  // Whether commands are to be timed.
  bool profiling(uint64_t now_ns) {
    bool any = false;
    for (const auto& profile : profiles_)
      if (profile != nullptr) [[unlikely]]
        any |= profile->IsRunning(now_ns);
    return any;
  }
  bool profiling(Audience audience, uint64_t now_ns) {
    const auto& profile = profiles_[static_cast<size_t>(audience)];
    return profile != nullptr && profile->IsRunning(now_ns);
  }
  // Begins a new profile of the newest `capacity` commands. Returns the one that it replaces, if any: to free
  // a large one takes long.
  [[nodiscard]] std::unique_ptr<Profile> Start(Audience audience, size_t capacity,
                                               uint64_t until_ns = UINT64_MAX);
  // Records no more; what was recorded stays.
  void Stop(Audience audience);
  // The session has ended: profiles stop, and the flight recorder keeps kEndedFlightRecords. Returns the
  // client's profile, if any.
  [[nodiscard]] std::unique_ptr<Profile> End() {
    for (const Audience audience : {Audience::kOperators, Audience::kUser}) Stop(audience);
    flight_.Shrink(kEndedFlightRecords);
    return Take(Audience::kClient);
  }
  // Commands were taken from the ring that had arrived at about `arrived_ns`.
  void Arrived(uint64_t arrived_ns) { arrived_ns_ = arrived_ns; }
  // The command was executed, or sent to the device, at about `now_ns`.
  void Note(const Running& command, uint64_t now_ns);
  // An asynchronous device has reported the queue's commands up to `sequence`.
  void Completed(uint32_t queue, uint64_t sequence, uint64_t now_ns) {
    for (const auto& profile : profiles_)
      if (profile != nullptr && !profile->unfinished.empty()) [[unlikely]]
        Finish(*profile, queue, sequence, now_ns);
  }

  // The device has reported something of the queue's work.
  void Timed(uint32_t queue, const executor::WorkTime& time) {
    for (const auto& profile : profiles_)
      if (profile != nullptr) SetTime(*profile, queue, time);
  }

  const Ring<FlightRecord>& flight() const { return flight_; }
  // Of the loop kernels in flight records.
  const NameTable& flight_names() const { return flight_names_; }
  // The last one; null: there is none.
  const Profile* profile(Audience audience) const { return profiles_[static_cast<size_t>(audience)].get(); }
  // As how many commands it counts, see Profile::CountedCommands; or the client's last one, which was sent.
  uint64_t counted_commands(Audience audience) const {
    const uint64_t sent = audience == Audience::kClient ? sent_commands_ : 0;
    if (profile(audience) == nullptr) return sent;
    return sent + Profile::CountedCommands(profile(audience)->records.capacity());
  }
  // The client's copy of a profile takes `bytes`, until the next one is sent.
  void Sent(uint64_t bytes) { sent_commands_ = (bytes + sizeof(CommandRecord) - 1) / sizeof(CommandRecord); }
  // Returns the profile, of which the recorder then knows nothing.
  std::unique_ptr<Profile> Take(Audience audience) {
    return std::move(profiles_[static_cast<size_t>(audience)]);
  }

 private:
  void NoteTimes(const Running& command);
  static void Finish(Profile& profile, uint32_t queue, uint64_t sequence, uint64_t now_ns);
  static void SetTime(Profile& profile, uint32_t queue, const executor::WorkTime& time);
  static uint32_t NumberOf(Profile& profile, std::string_view name) {
    return profile.names.NumberOf(name, Profile::NameBytes(profile.records.capacity()));
  }

  const bool synchronous_;
  Ring<FlightRecord> flight_;
  NameTable flight_names_;
  std::array<std::unique_ptr<Profile>, kAudiences> profiles_;  // by audience
  uint64_t arrived_ns_ = 0;
  uint64_t sent_commands_ = 0;
};

}  // namespace xpud::records
