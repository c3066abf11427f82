#include "daemon/records/recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <vector>

#include "daemon/records/archive.h"
#include "daemon/records/profiles.h"
#include "proto/ops/op_table.h"

namespace xpud::records {
namespace {

ops::Operand Tensor(std::initializer_list<int64_t> sizes) {
  ops::Operand operand;
  operand.rank = static_cast<uint8_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), operand.sizes.begin());
  return operand;
}

// A command of `add`, with times in the steps of 10 ns from `at`.
struct Add {
  explicit Add(uint64_t sequence, uint64_t at = 0) {
    call.row = running.row = &ops::RowOf("add.Tensor");
    call.outputs = outputs;
    call.inputs = inputs;
    running.sequence = sequence;
    running.header.kind = wire::CommandKind::kExecute;
    running.call = &call;
    if (at == 0) return;
    running.timed = true;
    running.decoded_ns = at;
    running.Launched(at + 10, at + 20);
  }
  const ops::Operand outputs[1] = {Tensor({2, int64_t{1} << 40})};
  const ops::Operand inputs[2] = {Tensor({2, 3}), Tensor({3})};
  kernels::OpCall call;
  Running running;
};

TEST(RingTest, KeepsTheNewest) {
  Ring<uint64_t> ring(1000);
  for (uint64_t i = 0; i < 2500; ++i) ring.Add(i);
  EXPECT_EQ(ring.added(), 2500u);
  EXPECT_EQ(ring.first(), 1500u);
  for (uint64_t i = ring.first(); i < ring.added(); ++i) ASSERT_EQ(ring[i], i);
}

TEST(RingTest, Shrinks) {
  for (const uint64_t added : {0, 3, 40, 1000, 2500}) {
    Ring<uint64_t> ring(1000);
    for (uint64_t i = 0; i < added; ++i) ring.Add(i);
    ring.Shrink(37);
    EXPECT_EQ(ring.added(), added);
    EXPECT_EQ(ring.first(), added < 37 ? 0 : added - 37);
    ring.Add(added);
    for (uint64_t i = ring.first(); i < ring.added(); ++i) ASSERT_EQ(ring[i], i) << added;
  }
}

TEST(RecorderTest, TheFlightRecorderAlwaysRuns) {
  Recorder recorder(/*synchronous=*/true);
  for (uint64_t i = 1; i <= Recorder::kFlightRecords + 5; ++i) recorder.Note(Add(i).running, 1);
  const Ring<FlightRecord>& flight = recorder.flight();
  EXPECT_EQ(flight[flight.first()].sequence, 6u);
  const FlightRecord& last = flight[flight.added() - 1];
  EXPECT_EQ(last.row, ops::RowOf("add.Tensor").number);
  EXPECT_EQ(last.output.rank, 2);
  EXPECT_EQ(last.output.sizes[0], 2u);
  EXPECT_EQ(last.output.sizes[1], UINT32_MAX);
  EXPECT_EQ(recorder.profile(Audience::kOperators), nullptr);
}

TEST(RecorderTest, AProfileHasTimesUntilItStops) {
  Recorder recorder(/*synchronous=*/true);
  EXPECT_FALSE(recorder.profiling(1));
  (void)recorder.Start(Audience::kOperators, 10, 1000);
  EXPECT_TRUE(recorder.profiling(999));
  recorder.Arrived(90);
  recorder.Note(Add(1, 100).running, 1);
  ASSERT_EQ(recorder.profile(Audience::kOperators)->records.added(), 1u);
  const CommandRecord& record = recorder.profile(Audience::kOperators)->records[0];
  EXPECT_EQ(record.arrived_ns, 90u);
  EXPECT_EQ(record.decoded_ns, 100u);
  EXPECT_EQ(record.submitted_ns, 110u);
  EXPECT_EQ(record.began_ns, 110u);
  EXPECT_EQ(record.ended_ns, 120u);
  EXPECT_EQ(record.device_ns, 10u);
  EXPECT_EQ(record.tensors, 3);
  EXPECT_EQ(record.shapes[2].sizes[0], 3u);
  EXPECT_FALSE(recorder.profiling(1000));
  EXPECT_FALSE(recorder.profiling(999)) << "it has stopped";
  (void)recorder.Start(Audience::kOperators, 10, UINT64_MAX);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records.added(), 0u) << "a new profile";
  recorder.Stop(Audience::kOperators);
  EXPECT_FALSE(recorder.profiling(1));
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(RecorderTest, AProfileLeavesNoMemoryBehind) {
  constexpr size_t kCommands = 200'000, kBytes = kCommands * sizeof(CommandRecord);
  Recorder recorder(/*synchronous=*/true);
  std::vector<std::unique_ptr<char[]>> others;  // that stay, as the daemon has them
  const size_t before = ResidentBytes();
  (void)recorder.Start(Audience::kUser, kCommands);
  for (size_t i = 0; i < kCommands; ++i) {
    Running command;
    command.header.kind = wire::CommandKind::kNop;
    command.timed = true;
    recorder.Note(command, 1);
    if (i % 500 == 0) others.push_back(std::make_unique<char[]>(100));
  }
  EXPECT_GT(ResidentBytes(), before + kBytes / 10 * 9);
  (void)recorder.Start(Audience::kUser, 1);         // the old one is freed
  EXPECT_LT(ResidentBytes(), before + kBytes / 2);  // sanitizers keep some of their own
}

TEST(RecorderTest, NamesTakeNoMoreThanTheyMay) {
  Recorder recorder(/*synchronous=*/true);
  constexpr size_t kCapacity = 10'000;
  (void)recorder.Start(Audience::kUser, kCapacity);
  for (int i = 0; i < 100'000; ++i) {
    const std::string name = "range " + std::to_string(i) + std::string(100, 'x');
    Running range;
    range.header.kind = wire::CommandKind::kRange;
    range.range = name;
    range.timed = true;
    recorder.Note(range, 1);
  }
  const Profile& profile = *recorder.profile(Audience::kUser);
  uint64_t bytes = 0;
  for (const auto& name : profile.names) bytes += name->size();
  EXPECT_LE(bytes, profile.names.bytes());
  EXPECT_LE(profile.names.bytes(), Profile::NameBytes(kCapacity));
  EXPECT_GT(profile.names.bytes(), Profile::NameBytes(kCapacity) * 9 / 10) << "there is room for more";
  EXPECT_EQ(profile.records[profile.records.added() - 1].kernel, 0u) << "one beyond the limit has no name";
  EXPECT_EQ(profile.counted_commands(), kCapacity + profile.names.bytes() / sizeof(CommandRecord));
  EXPECT_EQ(recorder.counted_commands(Audience::kUser), Profile::CountedCommands(kCapacity));
  EXPECT_GE(Profile::CountedCommands(kCapacity) * sizeof(CommandRecord) + sizeof(CommandRecord),
            kCapacity * sizeof(CommandRecord) + Profile::NameBytes(kCapacity));
}

TEST(RecorderTest, MeasuredTimesReplaceEstimates) {
  Recorder recorder(/*synchronous=*/false);
  (void)recorder.Start(Audience::kOperators, 3, UINT64_MAX);
  const auto note = [&](uint64_t sequence, uint64_t first_work, uint64_t end_of_work) {
    Add add(sequence, 100 * sequence);
    add.running.first_work = first_work;
    add.running.end_of_work = end_of_work;
    recorder.Note(add.running, 1);
  };
  note(1, 40, 42);
  note(2, 42, 42);  // without work on the device
  note(3, 42, 43);
  const Ring<CommandRecord>& records = recorder.profile(Audience::kOperators)->records;
  recorder.Timed(0, {41, 1200, 1210});
  recorder.Completed(0, 3, 5000);
  EXPECT_TRUE(records[0].exact);
  EXPECT_EQ(records[0].ended_ns, 1210u) << "not the estimate";
  EXPECT_FALSE(records[2].exact);
  EXPECT_EQ(records[2].ended_ns, 5000u);
  recorder.Stop(Audience::kOperators);
  recorder.Timed(0, {40, 1100, 1150});  // not in order, and after the end
  recorder.Timed(0, {42, 1300, 1400});
  recorder.Timed(0, {43, 1, 2});  // of no command
  recorder.Timed(0, {39, 1, 2});  // likewise
  recorder.Timed(1, {42, 1, 2});  // another queue
  EXPECT_EQ(records[0].began_ns, 1100u);
  EXPECT_EQ(records[0].ended_ns, 1210u);
  EXPECT_EQ(records[0].device_ns, 60u);
  EXPECT_FALSE(records[1].exact);
  EXPECT_EQ(records[2].began_ns, 1300u);
  EXPECT_EQ(records[2].device_ns, 100u);
}

TEST(RecorderTest, WhenCommandsWereAppended) {
  using What = executor::WorkTime::What;
  Recorder recorder(/*synchronous=*/false);
  (void)recorder.Start(Audience::kOperators, 10, UINT64_MAX);
  for (uint64_t i = 0; i < 4; ++i) {
    Add add(i + 1, 100);
    add.running.first_work = 2 * i;
    add.running.end_of_work = 2 * i + 2;
    recorder.Note(add.running, 1);
  }
  recorder.Timed(0, {0, 200, 210, What::kAppended});
  recorder.Timed(0, {1, 215, 220, What::kAppended});
  recorder.Timed(0, {2, 300, 330, What::kReplayed, 4});   // of two commands
  recorder.Timed(0, {8, 400, 410, What::kReplayed, 64});  // of none
  recorder.Timed(0, {UINT64_MAX, 400, 410, What::kReplayed, 64});
  const Ring<CommandRecord>& records = recorder.profile(Audience::kOperators)->records;
  EXPECT_EQ(records[0].appended_ns, 200u);
  EXPECT_EQ(records[0].append_ns, 20u);
  EXPECT_FALSE(records[0].replayed);
  for (const uint64_t i : {1, 2}) {
    EXPECT_EQ(records[i].appended_ns, 300u);
    EXPECT_EQ(records[i].append_ns, 30u);
    EXPECT_TRUE(records[i].replayed);
  }
  EXPECT_EQ(records[3].appended_ns, 0u);
  EXPECT_FALSE(records[0].exact) << "when it ran is not known";
}

TEST(RecorderTest, AQueueThatIsMadeAnewCountsFromElsewhere) {
  Recorder recorder(/*synchronous=*/false);
  (void)recorder.Start(Audience::kOperators, 10, UINT64_MAX);
  for (const uint64_t first_work : {100, 101, 5, 6}) {
    Add add(1, 100);
    add.running.first_work = first_work;
    add.running.end_of_work = first_work + 1;
    recorder.Note(add.running, 1);
  }
  recorder.Timed(0, {100, 7, 8});  // of the queue that is gone
  for (const uint64_t work : {5, 6}) recorder.Timed(0, {work, 10 * work, 10 * work + 5});
  const Ring<CommandRecord>& records = recorder.profile(Audience::kOperators)->records;
  EXPECT_FALSE(records[0].exact || records[1].exact);
  EXPECT_EQ(records[2].began_ns, 50u);
  EXPECT_EQ(records[3].began_ns, 60u);
}

TEST(RecorderTest, RangesHaveTheirNames) {
  Recorder recorder(/*synchronous=*/true);
  (void)recorder.Start(Audience::kOperators, 10, UINT64_MAX);
  for (const char* const name : {"step", "", "step"}) {
    Running range;
    range.header.kind = wire::CommandKind::kRange;
    range.range = name;
    range.timed = true;
    recorder.Note(range, 1);
  }
  const Profile& profile = *recorder.profile(Audience::kOperators);
  EXPECT_EQ(*profile.names[profile.records[0].kernel], "step");
  EXPECT_EQ(profile.records[1].kernel, 0u) << "its end has none";
  EXPECT_EQ(profile.records[2].kernel, profile.records[0].kernel);
  EXPECT_EQ(profile.records[0].ended_ns, 0u) << "it is no work of the device";
}

TEST(RecorderTest, LoopKernelsHaveTheirClientsNames) {
  Recorder recorder(/*synchronous=*/true);
  ops::KernelOfCall kernel;
  kernels::OpCall call;
  call.row = &ops::RowOf("xpud::loop");
  call.kernel = &kernel;
  Running running;
  running.header.kind = wire::CommandKind::kExecute;
  running.row = call.row;
  running.call = &call;  // without outputs
  for (const char* const name : {"softmax", "gather", "softmax", ""}) {
    kernel.name = name;
    recorder.Note(running, 1);
  }
  const NameTable& names = recorder.flight_names();
  for (const auto& [number, name] : {std::pair(0, "softmax"), {1, "gather"}, {2, "softmax"}, {3, ""}})
    EXPECT_EQ(*names[recorder.flight()[static_cast<uint64_t>(number)].kernel], name);
  const std::string prefix(100, 'k');
  for (int i = 0; i < 1000; ++i) {
    const std::string name = prefix + std::to_string(i);
    kernel.name = name;
    recorder.Note(running, 1);
  }
  EXPECT_LE(names.bytes(), Recorder::kFlightNameBytes);
  EXPECT_GT(names.bytes(), Recorder::kFlightNameBytes * 9 / 10);
  EXPECT_EQ(recorder.flight()[recorder.flight().added() - 1].kernel, 0u) << "there is no room for its name";
}

TEST(RecorderTest, TimesOfOverwrittenCommandsAreDropped) {
  Recorder recorder(/*synchronous=*/false);
  (void)recorder.Start(Audience::kClient, 2, UINT64_MAX);
  for (uint64_t i = 0; i < 3; ++i) {
    Add add(i + 1, 100);
    add.running.first_work = i;
    add.running.end_of_work = i + 1;
    recorder.Note(add.running, 1);
  }
  recorder.Timed(0, {0, 7, 9});
  const Ring<CommandRecord>& records = recorder.profile(Audience::kClient)->records;
  EXPECT_FALSE(records[1].exact);
  EXPECT_FALSE(records[2].exact);
}

TEST(RecorderTest, AnAsynchronousDeviceReportsEndsLater) {
  Recorder recorder(/*synchronous=*/false);
  (void)recorder.Start(Audience::kOperators, 2, UINT64_MAX);
  recorder.Note(Add(1, 100).running, 1);
  recorder.Note(Add(2, 200).running, 1);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[0].ended_ns, 0u);
  recorder.Completed(0, 1, 300);
  recorder.Completed(1, 2, 310);  // another queue
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[0].began_ns, 110u);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[0].ended_ns, 300u);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[1].ended_ns, 0u);
  recorder.Completed(0, 2, 350);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[1].began_ns, 300u) << "after the work before it";
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[1].device_ns, 50u);
  // Two ends at once: equal commands share the time.
  (void)recorder.Start(Audience::kOperators, 2, UINT64_MAX);
  recorder.Note(Add(1, 100).running, 1);
  recorder.Note(Add(2, 200).running, 1);
  recorder.Completed(0, 2, 310);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[0].began_ns, 110u);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[0].ended_ns, 210u);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[1].began_ns, 210u);
  EXPECT_EQ(recorder.profile(Audience::kOperators)->records[1].ended_ns, 310u);
  recorder.Note(Add(3, 400).running, 1);
  recorder.Note(Add(4, 500).running, 1);
  recorder.Note(Add(5, 600).running, 1);  // 3 was overwritten
  recorder.Completed(0, 5, 700);
  EXPECT_EQ(recorder.profile(Audience::kOperators)
                ->records[recorder.profile(Audience::kOperators)->records.first()]
                .sequence,
            4u);
  EXPECT_TRUE(recorder.profile(Audience::kOperators)->unfinished.empty());
}

TEST(ProfilesTest, SelectSessionsToCome) {
  Profiles profiles;
  const Tenant one{1000}, other{1001};
  constexpr Audience kOperators = Audience::kOperators, kUser = Audience::kUser;
  profiles.Start({kOperators, {.tenant = one}, 10, 500});
  EXPECT_EQ(profiles.Find(kOperators, 7, one, 400)->capacity, 10u);
  EXPECT_EQ(profiles.Find(kOperators, 7, other, 400), nullptr);
  EXPECT_EQ(profiles.Find(kUser, 7, one, 400), nullptr) << "another audience's";
  EXPECT_EQ(profiles.Find(kOperators, 7, one, 500), nullptr) << "its time is over";
  profiles.Start({kOperators, {}, 20, 500});
  EXPECT_EQ(profiles.Find(kOperators, 7, other, 400)->capacity, 20u);
  profiles.Start({kUser, {.tenant = one}, 30, 500});
  profiles.Stop(kOperators, {});
  EXPECT_EQ(profiles.Find(kOperators, 7, one, 400), nullptr);
  EXPECT_EQ(profiles.Find(kUser, 7, one, 400)->capacity, 30u);
  profiles.Start({kOperators, {.tenant = one}, 50, 500});
  for (uint64_t session = 1; session <= uint64_t{2} * Profiles::kMaxWishes; ++session)
    profiles.Start({kUser, {.session = session}, 40, 500});
  EXPECT_EQ(profiles.Find(kUser, 7, one, 400), nullptr) << "the oldest wishes are forgotten";
  EXPECT_EQ(profiles.Find(kOperators, 7, one, 400)->capacity, 50u) << "another audience's stay";
}

TEST(ArchiveTest, KeepsTheSessionsThatEndedLast) {
  Archive archive;
  for (uint64_t id = 1; id <= Archive::kSessions + 1; ++id)
    (void)archive.Add({.id = id, .reason = "it hung up", .recorder = std::make_unique<Recorder>(true)});
  EXPECT_EQ(archive.Find(1), nullptr);
  ASSERT_NE(archive.Find(2), nullptr);
  EXPECT_EQ(archive.Find(2)->reason, "it hung up");
}

TEST(ArchiveTest, ProfilesBeyondTheLimitGo) {
  const auto profiled = [](size_t capacity) {
    auto recorder = std::make_unique<Recorder>(true);
    (void)recorder->Start(Audience::kOperators, capacity, UINT64_MAX);
    for (uint64_t i = 1; i <= 3; ++i) recorder->Note(Add(i, 100).running, 1);
    return recorder;
  };
  Archive archive(/*max_commands=*/7);
  size_t dropped = 0;
  for (const uint64_t id : {1, 2, 3}) dropped += archive.Add({.id = id, .recorder = profiled(10)}).size();
  EXPECT_EQ(dropped, 1u) << "for the caller to free";
  EXPECT_EQ(archive.Find(1)->recorder->profile(Audience::kOperators), nullptr);
  EXPECT_EQ(archive.Find(1)->recorder->flight().added(), 3u) << "the flight records stay";
  EXPECT_NE(archive.Find(2)->recorder->profile(Audience::kOperators), nullptr);
  EXPECT_NE(archive.Find(3)->recorder->profile(Audience::kOperators), nullptr);
}

TEST(DescribeTest, NamesTheOp) {
  EXPECT_EQ(Describe(Stall::kNone, nullptr), "its turn");
  EXPECT_EQ(Describe(Stall::kCompiling, &ops::RowOf("add.Tensor")), "compiling (add.Tensor)");
}

}  // namespace
}  // namespace xpud::records
