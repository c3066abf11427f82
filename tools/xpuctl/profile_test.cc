#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tools/xpuctl/perfetto.pb.h"
#include "tools/xpuctl/profile_stats.h"
#include "tools/xpuctl/profile_trace.h"

namespace xpud::xpuctl {
namespace {

v1::ProfiledCommand Command(uint64_t sequence, const char* op, uint64_t arrived, uint64_t began,
                            uint64_t ended) {
  v1::ProfiledCommand command;
  command.set_sequence(sequence);
  command.set_op(op);
  command.set_arrived_ns(arrived);
  command.set_decoded_ns(began);
  command.set_submitted_ns(began);
  command.set_began_ns(began);
  command.set_ended_ns(ended);
  command.set_device_ns(ended - began);
  command.set_kernel(std::string("kernel_") + op);
  command.set_launches(1);
  command.set_bytes(1000);
  return command;
}

// Session 1 runs from 1,000 to 1,300 ns; meanwhile a command of session 2 waits.
ProfileData Profile() {
  ProfileData data;
  data.time_ns = 5000;
  data.unix_ns = 1'000'005'000;
  v1::Device& device = data.devices.emplace_back();
  device.set_name("a device");
  device.set_peak_memory_bytes_per_s(40'000'000'000);  // 25 ns for 1,000 bytes
  device.set_peak_float_operations_per_s(10'000'000'000);
  for (const uint64_t session : {1, 2}) {
    ProfiledSession& each = data.sessions.emplace_back();
    each.info.set_session(session);
    each.info.set_client_name("python");
  }
  data.sessions[0].commands = {Command(1, "mm", 1000, 1000, 1200), Command(2, "mm", 1000, 1200, 1300)};
  data.sessions[1].commands = {Command(1, "add", 1100, 1400, 1410)};
  v1::ProfiledCommand compiled = Command(2, "add", 1410, 1420, 1430);
  compiled.set_waited_for("compiling");
  compiled.set_submitted_ns(1425);
  data.sessions[1].commands.push_back(compiled);
  v1::ProfiledCommand free;
  free.set_sequence(3);
  free.set_op("free");
  free.set_arrived_ns(1500);
  free.set_decoded_ns(1500);
  data.sessions[0].commands[1].set_memory_bytes(4096);
  data.sessions[1].commands.push_back(free);
  return data;
}

TEST(ProfileStatsTest, SumUpByOpAndKernel) {
  const ProfileStats stats = StatsOf(Profile());
  ASSERT_EQ(stats.rows.size(), 2u);
  EXPECT_EQ(stats.rows[0].op, "mm");
  EXPECT_EQ(stats.rows[0].calls, 2u);
  EXPECT_EQ(stats.rows[0].device_ns, 300u);
  EXPECT_EQ(stats.rows[0].bytes, 2000u);
  EXPECT_EQ(stats.rows[1].kernel, "kernel_add");
  EXPECT_EQ(stats.device_ns, 320u);
  EXPECT_EQ(stats.commands, 5u);
  EXPECT_EQ(stats.span_ns, 500u);
}

TEST(ProfileStatsTest, WaitsAreThoseOfTheCommandsAndNameOthers) {
  const auto waits = StatsOf(Profile()).waits;
  EXPECT_EQ(waits.at("session 1, python"), 200u);  // from 1,100 to 1,300
  EXPECT_EQ(waits.at("the daemon"), 110u);         // to 1,400, and from 1,410 to 1,420
  EXPECT_EQ(waits.at("compiling"), 5u);
}

TEST(ProfileStatsTest, TheRoofIsWhicheverOfMemoryAndArithmeticTakesLonger) {
  ProfileData profile = Profile();
  v1::ProfiledCommand& product = profile.sessions[0].commands[0];
  product.set_operations(1000);
  EXPECT_EQ(StatsOf(profile).rows[0].least_ns, 25 + 25) << "operations on an unknown type do not count";
  product.set_shapes("float32[2,3] = float32[2,3], float32[3]");
  EXPECT_EQ(StatsOf(profile).rows[0].least_ns, 100 + 25);
  product.set_shapes("bfloat16[2,3]");
  EXPECT_EQ(StatsOf(profile).rows[0].least_ns, 25 + 25) << "this rate is not known";
  EXPECT_NE(StatsText(StatsOf(profile)).find("17%"), std::string::npos) << StatsText(StatsOf(profile));
  profile.devices.clear();
  EXPECT_EQ(StatsOf(profile).rows[0].least_ns, 0);
}

TEST(ProfileStatsTest, NothingGivesNothing) {
  EXPECT_TRUE(StatsOf({}).rows.empty());
  EXPECT_NE(StatsText(StatsOf({})).find("0 commands"), std::string::npos);
  EXPECT_EQ(StatsJson(StatsOf({})),
            "{\"commands\":0,\"span_ns\":0,\"device_ns\":0,\"estimated\":0,\"rows\":[],\"wait_ns\":{}}");
}

TEST(PerfettoTraceTest, SlicesOfATrackFollowEachOther) {
  perfetto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(PerfettoTrace(Profile())));
  std::map<uint64_t, std::string> names;
  std::map<uint64_t, uint64_t> parents, ended, flows;
  std::map<uint64_t, bool> open;
  std::map<std::string, std::vector<std::pair<uint64_t, int64_t>>> memory;
  size_t slices = 0;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    if (packet.has_track_descriptor()) {
      const auto& track = packet.track_descriptor();
      names[track.uuid()] = track.has_process() ? track.process().process_name() : track.name();
      parents[track.uuid()] = track.parent_uuid();
      continue;
    }
    const auto& event = packet.track_event();
    const uint64_t track = event.track_uuid();
    ASSERT_TRUE(names.contains(track)) << "a track is described first";
    EXPECT_EQ(names[parents[track]], "device 0: a device");
    EXPECT_EQ(packet.timestamp_clock_id(), 3u);
    if (event.type() == perfetto::TrackEvent::COUNTER) {
      memory[names[track]].push_back({packet.timestamp(), event.counter_value()});
      continue;
    }
    const bool begins = event.type() == perfetto::TrackEvent::SLICE_BEGIN;
    EXPECT_EQ(open[track], !begins);
    open[track] = begins;
    EXPECT_GE(packet.timestamp(), ended[track]);
    ended[track] = packet.timestamp();
    slices += begins;
    for (const uint64_t flow : event.flow_ids()) ++flows[flow];
  }
  EXPECT_EQ(slices, 5u + 4u + 1u);  // turns, work, and a compile
  EXPECT_EQ(flows.size(), 4u);
  for (const auto& [flow, ends] : flows) EXPECT_EQ(ends, 2u);
  const std::vector<std::pair<uint64_t, int64_t>> changes = {{1000, 0}, {1200, 4096}}, none = {{1400, 0}};
  EXPECT_EQ(memory["memory: python, session 1"], changes);
  EXPECT_EQ(memory["memory: python, session 2"], none) << "it has not changed";
}

// Two commands that were published together and replayed in one recording, and one that came later by itself.
TEST(PerfettoTraceTest, FlowsLeadFromTheClientByTheExecutorToTheDevice) {
  ProfileData data;
  ProfiledSession& session = data.sessions.emplace_back();
  session.info.set_session(1);
  session.commands = {Command(1, "mm", 1000, 1010, 1200), Command(2, "add", 1000, 1200, 1300),
                      Command(3, "mm", 1100, 1300, 1400)};
  for (v1::ProfiledCommand& command : session.commands) command.set_published(true);
  for (const size_t i : {0, 1}) {
    session.commands[i].set_appended_ns(1050);
    session.commands[i].set_append_ns(20);
    session.commands[i].set_replayed(true);
  }
  session.commands[2].set_appended_ns(1310);
  session.commands[2].set_append_ns(5);
  perfetto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(PerfettoTrace(data)));
  std::map<uint64_t, std::string> names;
  std::map<uint64_t, std::vector<std::string>> flows;
  std::map<std::string, std::vector<uint64_t>> begins, ends;
  std::map<uint64_t, std::string> open;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    if (packet.has_track_descriptor())
      names[packet.track_descriptor().uuid()] = packet.track_descriptor().name();
    if (!packet.has_track_event()) continue;
    const auto& event = packet.track_event();
    const std::string track =
        names[event.track_uuid()].substr(0, names[event.track_uuid()].find_first_of(",:"));
    for (const uint64_t flow : event.flow_ids()) flows[flow].push_back(track);
    if (event.type() == perfetto::TrackEvent::SLICE_BEGIN) {
      open[event.track_uuid()] = event.name();
      begins[track + " " + event.name()].push_back(packet.timestamp());
    } else if (event.type() == perfetto::TrackEvent::SLICE_END) {
      ends[track + " " + open[event.track_uuid()]].push_back(packet.timestamp());
    }
  }
  ASSERT_EQ(flows.size(), 3u);
  const std::vector<std::string> way = {"client", "daemon", "device queue 0", "executor"};
  for (auto& [flow, tracks] : flows) {
    std::ranges::sort(tracks);
    EXPECT_EQ(tracks, way);
  }
  EXPECT_EQ(begins["client publish"], (std::vector<uint64_t>{1000, 1100}));
  EXPECT_EQ(ends["client publish"], (std::vector<uint64_t>{1100, 1300})) << "it has published more";
  EXPECT_EQ(begins["executor replay"], std::vector<uint64_t>{1050});
  EXPECT_EQ(ends["executor replay"], std::vector<uint64_t>{1070});
  EXPECT_EQ(begins["executor mm"], std::vector<uint64_t>{1310});
}

v1::ProfiledCommand Range(const char* name, uint64_t at) {
  v1::ProfiledCommand command;
  command.set_op("range");
  command.set_range(name);
  command.set_arrived_ns(at);
  command.set_decoded_ns(at);
  return command;
}

// "outer" contains "inner" and a command; "open" does not end.
ProfileData WithRanges() {
  ProfileData data;
  ProfiledSession& session = data.sessions.emplace_back();
  session.info.set_session(1);
  session.info.set_client_name("python");
  session.commands = {
      Range("", 900),  Range("outer", 1000), Range("inner", 1100), Command(1, "mm", 1150, 1150, 1180),
      Range("", 1200), Range("", 1300),      Range("open", 1400),  Command(2, "mm", 1450, 1450, 1500)};
  return data;
}

TEST(PerfettoTraceTest, RangesLieInEachOther) {
  perfetto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(PerfettoTrace(WithRanges())));
  uint64_t track = 0;
  std::vector<std::pair<std::string, uint64_t>> events;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    if (packet.track_descriptor().name() == "ranges of queue 0: python, session 1")
      track = packet.track_descriptor().uuid();
    if (packet.has_track_event() && packet.track_event().track_uuid() == track)
      events.push_back({packet.track_event().name(), packet.timestamp()});
  }
  const std::vector<std::pair<std::string, uint64_t>> expected = {
      {"outer", 1000}, {"inner", 1100}, {"", 1200}, {"", 1300}, {"open", 1400}, {"", 1500}};
  EXPECT_EQ(events, expected);
}

TEST(ChromeTraceTest, RangesAreSlices) {
  const std::string trace = ChromeTrace(WithRanges());
  EXPECT_NE(trace.find("\"cat\":\"range\",\"name\":\"outer\",\"pid\":0,"), std::string::npos) << trace;
  EXPECT_NE(trace.find("\"ts\":0.200,\"dur\":0.100,\"args\":{\"op\":\"range\""), std::string::npos) << trace;
  EXPECT_EQ(trace.find("\"name\":\"range\""), std::string::npos)
      << "their commands are no slices of their own";
}

TEST(ChromeTraceTest, TimesAreMicrosecondsFromTheFirstCommand) {
  const std::string trace = ChromeTrace(Profile());
  EXPECT_NE(trace.find("\"baseTimeNanoseconds\":1000001000"), std::string::npos) << trace;
  EXPECT_NE(trace.find("\"name\":\"kernel_mm\",\"pid\":0,\"tid\":2,\"ts\":0.200,\"dur\":0.100"),
            std::string::npos)
      << trace;
  EXPECT_NE(trace.find("{\"ph\":\"C\",\"name\":\"memory: python, session 1\",\"pid\":0,\"ts\":0.200,"
                       "\"args\":{\"bytes\":4096}}"),
            std::string::npos)
      << trace;
}

v1::MemorySample Sample(uint64_t at, const char* tenant, uint64_t on_device, uint64_t moved_out = 0) {
  v1::MemorySample sample;
  sample.set_time_ns(at);
  sample.set_tenant(tenant);
  sample.set_on_device_bytes(on_device);
  sample.set_moved_out_bytes(moved_out);
  return sample;
}

// What "uid:1" has of device 0 leaves it at 1,200 ns. There are commands from 1,000 ns on.
ProfileData WithMemory() {
  ProfileData data = Profile();
  v1::MemorySample device = Sample(1210, "", 0), saved = Sample(1220, "uid:2", 0);
  device.set_host_bytes(4096);
  saved.set_shared_bytes(5);
  saved.set_saved_bytes(6);
  data.memory.push_back(
      {0,
       {Sample(500, "uid:1", 1), Sample(600, "uid:1", 4096), Sample(1200, "uid:1", 0, 4096), device, saved}});
  return data;
}

TEST(PerfettoTraceTest, CountsWhatTenantsHaveFromTheFirstCommandOn) {
  perfetto::Trace trace;
  ASSERT_TRUE(trace.ParseFromString(PerfettoTrace(WithMemory())));
  std::map<uint64_t, std::string> names;
  using Changes = std::vector<std::pair<uint64_t, int64_t>>;
  std::map<std::string, Changes> counters;
  for (const perfetto::TracePacket& packet : trace.packet()) {
    const auto& event = packet.track_event();
    if (packet.track_descriptor().has_counter()) {
      const auto& track = packet.track_descriptor();
      EXPECT_EQ(track.counter().unit(), perfetto::CounterDescriptor::SIZE_BYTES);
      names[track.uuid()] = track.name();
    } else if (event.type() == perfetto::TrackEvent::COUNTER) {
      ASSERT_TRUE(names.contains(event.track_uuid())) << "a track is described first";
      counters[names[event.track_uuid()]].push_back({packet.timestamp(), event.counter_value()});
    }
  }
  std::erase_if(counters, [](const auto& each) { return each.first.starts_with("memory: "); });
  const std::map<std::string, Changes> expected = {
      {"on device: uid:1", {{1000, 4096}, {1200, 0}}},
      {"moved out: uid:1", {{1000, 0}, {1200, 4096}}},
      {"host memory of what is moved out", {{1210, 4096}}},
      {"shared: uid:2", {{1220, 5}}},
      {"saved by merging: uid:2", {{1220, 6}}},
  };
  EXPECT_EQ(counters, expected);
}

TEST(ChromeTraceTest, CountsWhatTenantsHave) {
  const std::string trace = ChromeTrace(WithMemory());
  for (const char* const event : {
           R"({"ph":"C","name":"on device: uid:1","pid":0,"ts":0.000,"args":{"bytes":4096}})",
           R"({"ph":"C","name":"moved out: uid:1","pid":0,"ts":0.200,"args":{"bytes":4096}})",
           R"({"ph":"C","name":"host memory of what is moved out","pid":0,"ts":0.210,"args":{"bytes":4096}})",
           R"({"ph":"C","name":"saved by merging: uid:2","pid":0,"ts":0.220,"args":{"bytes":6}})",
       })
    EXPECT_NE(trace.find(event), std::string::npos) << event << " is not in " << trace;
  EXPECT_EQ(trace.find("saved by merging: uid:1"), std::string::npos) << "it is always 0";
}

}  // namespace
}  // namespace xpud::xpuctl
