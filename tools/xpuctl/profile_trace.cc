#include "tools/xpuctl/profile_trace.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/text.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/perfetto.pb.h"

namespace xpud::xpuctl {
namespace {

enum class TrackKind {
  kPublishes,
  kTurns,
  kCompiles,
  kAppends,
  kQueue,
  kRanges,
  // Counters of bytes, first a session's and then tenants' and the device's.
  kMemory,
  kOnDevice,
  kMovedOut,
  kShared,
  kSaved,
  kHost,
};
bool Counts(TrackKind kind) { return kind >= TrackKind::kMemory; }

// A row of slices that do not overlap, or a counter.
struct Track {
  TrackKind kind = TrackKind::kTurns;
  uint32_t device = 0;
  uint64_t session = 0;
  uint32_t queue = 0;
  std::string tenant = {};  // whose counter it is; empty: a session's, or the device's
  auto operator<=>(const Track&) const = default;
};

// What a slice is in the flows that pass through it; a flow is that of a command, to its work on the device.
enum class Part { kBegin, kStep, kEnd };

struct Slice {
  Track track;
  std::string name;
  const char* category;
  uint64_t began_ns, ended_ns;
  const v1::ProfiledCommand* command;  // null: none, or several
  Part part = Part::kStep;
  absl::InlinedVector<uint64_t, 1> flows = {};
};

std::string NameOf(const Track& track, const v1::ProfileInfo& info) {
  const std::string who = absl::StrCat(info.client_name(), ", session ", track.session);
  switch (track.kind) {
    case TrackKind::kPublishes:
      return absl::StrCat("client: ", who);
    case TrackKind::kTurns:
      return absl::StrCat("daemon: ", who);
    case TrackKind::kCompiles:
      return absl::StrCat("compiler: ", who);
    case TrackKind::kAppends:
      return absl::StrCat("executor, queue ", track.queue, ": ", who);
    case TrackKind::kQueue:
      return absl::StrCat("device queue ", track.queue, ": ", who);
    case TrackKind::kMemory:
      return absl::StrCat("memory: ", who);
    case TrackKind::kRanges:
      return absl::StrCat("ranges of queue ", track.queue, ": ", who);
    case TrackKind::kOnDevice:
      return absl::StrCat("on device: ", track.tenant);
    case TrackKind::kMovedOut:
      return absl::StrCat("moved out: ", track.tenant);
    case TrackKind::kShared:
      return absl::StrCat("shared: ", track.tenant);
    case TrackKind::kSaved:
      return absl::StrCat("saved by merging: ", track.tenant);
    case TrackKind::kHost:
      return "host memory of what is moved out";
  }
  return "";
}

std::string DeviceName(const ProfileData& profile, uint32_t device) {
  return absl::StrCat(
      "device ", device,
      device < profile.devices.size() ? ": " + profile.devices[device].name() : std::string());
}

// A number of its own for each command, as far as 24 bits for sessions and devices and 40 for commands go.
uint64_t FlowOf(const v1::ProfileInfo& info, const v1::ProfiledCommand& command) {
  return (info.session() * 64 + info.device()) << 40 | (command.sequence() & 0xff'ffff'ffff);
}

// Whether it has work on the device, whose times are known.
bool Works(const v1::ProfiledCommand& command) {
  return command.began_ns() != 0 && command.ended_ns() > command.began_ns();
}

// Adds the command to the last slice, if its work began together with that slice's, or to a new one.
void AddToSlices(const Track& track, const char* category, uint64_t began_ns, uint64_t ended_ns, Part part,
                 const v1::ProfileInfo& info, const v1::ProfiledCommand& command,
                 std::vector<Slice>& slices) {
  if (slices.empty() || slices.back().began_ns != began_ns) {
    if (!slices.empty()) slices.back().ended_ns = std::min(slices.back().ended_ns, began_ns);
    slices.push_back({track, "", category, began_ns, began_ns, nullptr, part, {}});
  }
  Slice& slice = slices.back();
  slice.ended_ns = std::max(slice.ended_ns, ended_ns);
  if (Works(command)) slice.flows.push_back(FlowOf(info, command));
}

// Commands that the client published together, from then until the daemon turned to the last one of them, or
// the client published more.
std::vector<Slice> PublishesOf(const ProfiledSession& session) {
  const Track track{TrackKind::kPublishes, session.info.device(), session.info.session(), 0};
  std::vector<Slice> slices;
  for (const v1::ProfiledCommand& command : session.commands) {
    if (!command.published() || (!slices.empty() && command.arrived_ns() < slices.back().began_ns)) continue;
    AddToSlices(track, "publish", command.arrived_ns(), command.decoded_ns(), Part::kBegin, session.info,
                command, slices);
    slices.back().name = "publish";
  }
  return slices;
}

// What the executor appended to the device's queues: launches, or recordings of several.
std::vector<Slice> AppendsOf(const ProfiledSession& session) {
  std::map<uint32_t, std::vector<Slice>> of_queues;
  for (const v1::ProfiledCommand& command : session.commands) {
    if (command.appended_ns() == 0) continue;
    std::vector<Slice>& slices = of_queues[command.queue()];
    if (!slices.empty() && command.appended_ns() < slices.back().began_ns) continue;
    const Track track{TrackKind::kAppends, session.info.device(), session.info.session(), command.queue()};
    AddToSlices(track, command.replayed() ? "replay" : "append", command.appended_ns(),
                command.appended_ns() + command.append_ns(), Part::kStep, session.info, command, slices);
    if (!slices.back().name.empty()) continue;
    slices.back().name = command.replayed() ? "replay" : command.op();
    if (!command.replayed()) slices.back().command = &command;
  }
  std::vector<Slice> all;
  for (auto& [queue, slices] : of_queues) std::ranges::move(slices, std::back_inserter(all));
  return all;
}

// The ranges that the program named, by their begins. Those that do not end reach to the last command.
std::vector<Slice> RangesOf(const ProfiledSession& session) {
  std::vector<Slice> ranges;
  std::map<uint32_t, std::vector<size_t>> open;  // by queue
  uint64_t now = 0;
  for (const v1::ProfiledCommand& command : session.commands) {
    now = std::max({now, command.decoded_ns(), command.ended_ns()});
    if (command.op() != "range") continue;
    std::vector<size_t>& of_queue = open[command.queue()];
    if (!command.range().empty()) {
      of_queue.push_back(ranges.size());
      const Track track = {TrackKind::kRanges, session.info.device(), session.info.session(),
                           command.queue()};
      ranges.push_back({track, command.range(), "range", command.decoded_ns(), 0, &command});
    } else if (!of_queue.empty()) {
      ranges[of_queue.back()].ended_ns = command.decoded_ns();
      of_queue.pop_back();
    }
  }
  for (Slice& range : ranges)
    if (range.ended_ns == 0) range.ended_ns = now;
  return ranges;
}

// Calls `each` with every slice; those of a track do not overlap, and are in order.
void ForEachSlice(const ProfiledSession& session, absl::FunctionRef<void(const Slice&)> each) {
  const v1::ProfileInfo& info = session.info;
  for (const v1::ProfiledCommand& command : session.commands) {
    if (command.op() == "range") continue;
    const bool works = Works(command);
    absl::InlinedVector<uint64_t, 1> flows;
    if (works) flows.push_back(FlowOf(info, command));
    const uint64_t sent = std::max(command.submitted_ns(), command.decoded_ns());
    Track track{TrackKind::kTurns, info.device(), info.session(), 0};
    const bool compiled = command.waited_for() == "compiling";
    if (compiled)
      each({{TrackKind::kCompiles, info.device(), info.session(), 0},
            command.op(),
            "compile",
            command.decoded_ns(),
            sent,
            &command});
    each({track, command.op(), "daemon", compiled ? sent : command.decoded_ns(), sent, &command,
          command.published() ? Part::kStep : Part::kBegin, flows});
    if (!works) continue;
    track.kind = TrackKind::kQueue;
    track.queue = command.queue();
    each({track, command.kernel().empty() ? command.op() : command.kernel(),
          command.launches() != 0 ? "kernel" : "copy", command.began_ns(), command.ended_ns(), &command,
          Part::kEnd, flows});
  }
}

using EachChange = absl::FunctionRef<void(const Track&, uint64_t ns, uint64_t bytes)>;

// Calls `each` whenever the memory of the session on the device has changed.
void ForEachChange(const ProfiledSession& session, EachChange each) {
  const Track track{TrackKind::kMemory, session.info.device(), session.info.session(), 0};
  uint64_t last = UINT64_MAX;
  for (const v1::ProfiledCommand& command : session.commands) {
    if (command.memory_bytes() == last) continue;
    last = command.memory_bytes();
    each(track, std::max(command.submitted_ns(), command.decoded_ns()), last);
  }
}

// Calls `each` whenever the memory of the device or of its tenants has changed, track by track. What changed
// before `from_ns` counts as of then. Values that are always 0 have no track.
void ForEachChange(const DeviceHistory& history, uint64_t from_ns, EachChange each) {
  struct Change {
    uint64_t ns, bytes;
  };
  std::map<Track, std::vector<Change>> tracks;
  const auto add = [&](TrackKind kind, const v1::MemorySample& sample, uint64_t bytes) {
    std::vector<Change>& changes = tracks[{kind, history.device, 0, 0, sample.tenant()}];
    const uint64_t ns = std::max(sample.time_ns(), from_ns);
    if (!changes.empty() && changes.back().ns == ns) changes.pop_back();
    if (changes.empty() || changes.back().bytes != bytes) changes.push_back({ns, bytes});
  };
  for (const v1::MemorySample& sample : history.samples) {
    if (sample.tenant().empty()) {
      add(TrackKind::kHost, sample, sample.host_bytes());
      continue;
    }
    add(TrackKind::kOnDevice, sample, sample.on_device_bytes());
    add(TrackKind::kMovedOut, sample, sample.moved_out_bytes());
    add(TrackKind::kShared, sample, sample.shared_bytes());
    add(TrackKind::kSaved, sample, sample.saved_bytes());
  }
  for (const auto& [track, changes] : tracks) {
    if (std::ranges::all_of(changes, [](const Change& change) { return change.bytes == 0; })) continue;
    for (const Change& change : changes) each(track, change.ns, change.bytes);
  }
}

// Numbers tracks in the order in which they appear.
class Tracks {
 public:
  // Returns the number, from 1, and whether it is new.
  std::pair<uint64_t, bool> Find(const Track& track) {
    const auto [found, is_new] = numbers_.try_emplace(track, numbers_.size() + 1);
    return {found->second, is_new};
  }

 private:
  std::map<Track, uint64_t> numbers_;
};

void AppendArgs(const v1::ProfiledCommand& command, std::string& out) {
  absl::StrAppend(&out, "{\"op\":", JsonString(command.op()), ",\"correlation\":", command.sequence(),
                  ",\"queue\":", command.queue(), ",\"bytes\":", command.bytes());
  if (command.decoded_ns() > command.arrived_ns())
    absl::StrAppend(&out, ",\"waited ns\":", command.decoded_ns() - command.arrived_ns());
  if (!command.shapes().empty()) absl::StrAppend(&out, ",\"shapes\":", JsonString(command.shapes()));
  if (command.operations() != 0) absl::StrAppend(&out, ",\"operations\":", command.operations());
  if (command.launches() != 0) absl::StrAppend(&out, ",\"launches\":", command.launches());
  if (!command.waited_for().empty())
    absl::StrAppend(&out, ",\"waited for\":", JsonString(command.waited_for()));
  if (command.replayed()) out += ",\"replayed\":true";
  out += "}";
}

// Microseconds with three decimals.
std::string Micros(uint64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

// The first time in the profile.
uint64_t BaseOf(const ProfileData& profile) {
  uint64_t base = UINT64_MAX;
  for (const ProfiledSession& session : profile.sessions)
    if (!session.commands.empty()) base = std::min(base, session.commands.front().arrived_ns());
  return base == UINT64_MAX ? 0 : base;
}

class ChromeWriter {
 public:
  explicit ChromeWriter(const ProfileData& profile) : profile_(profile), base_(BaseOf(profile)) {
    absl::StrAppend(&out_, "{\"schemaVersion\":1,\"displayTimeUnit\":\"ns\",\"baseTimeNanoseconds\":",
                    static_cast<uint64_t>(profile.unix_ns) - (profile.time_ns - base_), ",\"traceEvents\":[");
  }

  void Add(const ProfiledSession& session) {
    for (const Slice& slice : PublishesOf(session)) Add(slice, session.info);
    ForEachSlice(session, [&](const Slice& slice) { Add(slice, session.info); });
    for (const Slice& slice : AppendsOf(session)) Add(slice, session.info);
    for (const Slice& range : RangesOf(session)) Add(range, session.info);
    ForEachChange(session, [&](const Track& track, uint64_t ns, uint64_t bytes) {
      Count(track, session.info, ns, bytes);
    });
  }
  void Add(const DeviceHistory& history) {
    ForEachChange(history, base_, [&](const Track& track, uint64_t ns, uint64_t bytes) {
      Count(track, v1::ProfileInfo(), ns, bytes);
    });
  }

  std::string Finish() {
    out_ += "\n]}\n";
    return std::move(out_);
  }

 private:
  void Begin() {
    out_ += first_ ? "\n" : ",\n";
    first_ = false;
  }
  void Count(const Track& track, const v1::ProfileInfo& info, uint64_t ns, uint64_t bytes) {
    Begin();
    absl::StrAppend(&out_, "{\"ph\":\"C\",\"name\":", JsonString(NameOf(track, info)),
                    ",\"pid\":", track.device, ",\"ts\":", Micros(ns - std::min(base_, ns)),
                    ",\"args\":{\"bytes\":", bytes, "}}");
  }
  void Meta(const char* what, uint32_t pid, uint64_t tid, const std::string& name) {
    Begin();
    absl::StrAppend(&out_, "{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid, ",\"tid\":", tid,
                    ",\"args\":{\"name\":", JsonString(name), "}}");
  }
  void Add(const Slice& slice, const v1::ProfileInfo& info) {
    const auto [tid, is_new] = tracks_.Find(slice.track);
    const uint32_t pid = slice.track.device;
    if (is_new) Meta("thread_name", pid, tid, NameOf(slice.track, info));
    if (is_new && devices_.insert({pid, true}).second)
      Meta("process_name", pid, 0, DeviceName(profile_, pid));
    Begin();
    const std::string began = Micros(slice.began_ns - std::min(base_, slice.began_ns));
    absl::StrAppend(&out_, "{\"ph\":\"X\",\"cat\":\"", slice.category, "\",\"name\":", JsonString(slice.name),
                    ",\"pid\":", pid, ",\"tid\":", tid, ",\"ts\":", began,
                    ",\"dur\":", Micros(slice.ended_ns - slice.began_ns));
    if (slice.command != nullptr) {
      out_ += ",\"args\":";
      AppendArgs(*slice.command, out_);
    }
    out_ += "}";
    static constexpr const char* kPhases[] = {"s", "t", "f"};  // by Part
    for (const uint64_t flow : slice.flows) {
      Begin();
      absl::StrAppend(&out_, "{\"ph\":\"", kPhases[static_cast<size_t>(slice.part)], "\",\"id\":\"", flow,
                      "\",\"pid\":", pid, ",\"tid\":", tid, ",\"ts\":", began,
                      ",\"cat\":\"ac2g\",\"name\":\"ac2g\"",
                      slice.part == Part::kBegin ? "" : ",\"bp\":\"e\"", "}");
    }
  }

  const ProfileData& profile_;
  const uint64_t base_;
  std::string out_;
  bool first_ = true;
  Tracks tracks_;
  std::map<uint32_t, bool> devices_;
};

class PerfettoWriter {
 public:
  explicit PerfettoWriter(const ProfileData& profile) : profile_(profile), base_(BaseOf(profile)) {}

  void Add(const ProfiledSession& session) {
    for (const Slice& slice : PublishesOf(session)) Add(slice, session.info);
    ForEachSlice(session, [&](const Slice& slice) { Add(slice, session.info); });
    for (const Slice& slice : AppendsOf(session)) Add(slice, session.info);
    AddRanges(RangesOf(session), session.info);
    ForEachChange(session, [&](const Track& track, uint64_t ns, uint64_t bytes) {
      Count(track, session.info, ns, bytes);
    });
  }
  void Add(const DeviceHistory& history) {
    ForEachChange(history, base_, [&](const Track& track, uint64_t ns, uint64_t bytes) {
      Count(track, v1::ProfileInfo(), ns, bytes);
    });
  }
  std::string Finish() { return std::move(out_); }

 private:
  static constexpr uint32_t kMonotonic = 3;      // of Perfetto's clocks
  static constexpr uint64_t kDevices = 1 << 30;  // tracks of processes have numbers from here on

  // A trace is its packets one after the other.
  void Write(const perfetto::TracePacket& packet) {
    perfetto::Trace trace;
    *trace.add_packet() = packet;
    trace.AppendToString(&out_);
  }
  void Describe(const Track& track, uint64_t uuid, const v1::ProfileInfo& info) {
    perfetto::TracePacket packet;
    if (devices_.insert({track.device, true}).second) {
      packet.set_trusted_packet_sequence_id(1);
      auto& device = *packet.mutable_track_descriptor();
      device.set_uuid(kDevices + track.device);
      device.mutable_process()->set_pid(static_cast<int32_t>(track.device) + 1);
      device.mutable_process()->set_process_name(DeviceName(profile_, track.device));
      Write(packet);
    }
    packet.Clear();
    packet.set_trusted_packet_sequence_id(1);
    auto& descriptor = *packet.mutable_track_descriptor();
    descriptor.set_uuid(uuid);
    descriptor.set_parent_uuid(kDevices + track.device);
    descriptor.set_name(NameOf(track, info));
    if (Counts(track.kind)) descriptor.mutable_counter()->set_unit(perfetto::CounterDescriptor::SIZE_BYTES);
    Write(packet);
  }
  static void Annotate(const char* name, const std::string& value, perfetto::TrackEvent& event) {
    if (value.empty()) return;
    auto& annotation = *event.add_debug_annotations();
    annotation.set_name(name);
    annotation.set_string_value(value);
  }
  static void Annotate(const char* name, uint64_t value, perfetto::TrackEvent& event) {
    auto& annotation = *event.add_debug_annotations();
    annotation.set_name(name);
    annotation.set_uint_value(value);
  }
  // Makes the packet an event.
  perfetto::TrackEvent& Begin(perfetto::TrackEvent::Type type, uint64_t track, uint64_t ns) {
    packet_.Clear();
    packet_.set_trusted_packet_sequence_id(1);
    packet_.set_timestamp_clock_id(kMonotonic);
    packet_.set_timestamp(ns);
    packet_.mutable_track_event()->set_type(type);
    packet_.mutable_track_event()->set_track_uuid(track);
    return *packet_.mutable_track_event();
  }
  void Count(const Track& track, const v1::ProfileInfo& info, uint64_t ns, uint64_t bytes) {
    const auto [uuid, is_new] = tracks_.Find(track);
    if (is_new) Describe(track, uuid, info);
    Begin(perfetto::TrackEvent::COUNTER, uuid, ns).set_counter_value(static_cast<int64_t>(bytes));
    Write(packet_);
  }
  // Slices that may lie in each other; a slice's end comes after those of the slices in it.
  void AddRanges(const std::vector<Slice>& ranges, const v1::ProfileInfo& info) {
    std::map<Track, std::vector<uint64_t>> ends;  // of the slices that are open
    const auto close = [&](uint64_t uuid, std::vector<uint64_t>& open, uint64_t before) {
      for (; !open.empty() && open.back() <= before; open.pop_back()) {
        Begin(perfetto::TrackEvent::SLICE_END, uuid, open.back());
        Write(packet_);
      }
    };
    for (const Slice& range : ranges) {
      const auto [uuid, is_new] = tracks_.Find(range.track);
      if (is_new) Describe(range.track, uuid, info);
      std::vector<uint64_t>& open = ends[range.track];
      close(uuid, open, range.began_ns);
      auto& begin = Begin(perfetto::TrackEvent::SLICE_BEGIN, uuid, range.began_ns);
      begin.add_categories(range.category);
      begin.set_name(range.name);
      Write(packet_);
      open.push_back(range.ended_ns);
    }
    for (auto& [track, open] : ends) close(tracks_.Find(track).first, open, UINT64_MAX);
  }
  void Add(const Slice& slice, const v1::ProfileInfo& info) {
    const auto [uuid, is_new] = tracks_.Find(slice.track);
    if (is_new) Describe(slice.track, uuid, info);
    auto& begin = Begin(perfetto::TrackEvent::SLICE_BEGIN, uuid, slice.began_ns);
    begin.add_categories(slice.category);
    begin.set_name(slice.name);
    for (const uint64_t flow : slice.flows) begin.add_flow_ids(flow);
    if (slice.command != nullptr) Annotate(*slice.command, begin);
    Write(packet_);
    Begin(perfetto::TrackEvent::SLICE_END, uuid, slice.ended_ns);
    Write(packet_);
  }
  static void Annotate(const v1::ProfiledCommand& command, perfetto::TrackEvent& begin) {
    Annotate("op", command.op(), begin);
    Annotate("shapes", command.shapes(), begin);
    Annotate("correlation", command.sequence(), begin);
    Annotate("bytes", command.bytes(), begin);
    if (command.decoded_ns() > command.arrived_ns())
      Annotate("waited ns", command.decoded_ns() - command.arrived_ns(), begin);
    Annotate("launches", command.launches(), begin);
    Annotate("waited for", command.waited_for(), begin);
    if (command.replayed()) Annotate("replayed", 1, begin);
  }

  const ProfileData& profile_;
  const uint64_t base_;
  std::string out_;
  Tracks tracks_;
  std::map<uint32_t, bool> devices_;
  perfetto::TracePacket packet_;
};

template <typename Writer>
std::string Written(const ProfileData& profile) {
  Writer writer(profile);
  for (const ProfiledSession& session : profile.sessions) writer.Add(session);
  for (const DeviceHistory& history : profile.memory) writer.Add(history);
  return writer.Finish();
}

}  // namespace

std::string ChromeTrace(const ProfileData& profile) { return Written<ChromeWriter>(profile); }
std::string PerfettoTrace(const ProfileData& profile) { return Written<PerfettoWriter>(profile); }

}  // namespace xpud::xpuctl
