// The parts of xpuctl that need no daemon; tests/e2e/xpuctl_test.py runs the program against a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "proto/control/xpud.pb.h"
#include "tools/xpuctl/checks.h"
#include "tools/xpuctl/csv.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/memory_text.h"
#include "tools/xpuctl/query_fields.h"
#include "tools/xpuctl/rates.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

TEST(UnitsTest, BytesUseTheLargestUnitThatKeepsThemReadable) {
  EXPECT_EQ(Bytes(0), "0 B");
  EXPECT_EQ(Bytes(1023), "1023 B");
  EXPECT_EQ(Bytes(1024), "1.0 KiB");
  EXPECT_EQ(Bytes(64.0 * (1 << 20)), "64.0 MiB");
  EXPECT_EQ(Bytes(1048575), "1.0 MiB");
}

TEST(UnitsTest, CountsAndTimesRoundUpIntoTheNextUnit) {
  EXPECT_EQ(Count(999), "999");
  EXPECT_EQ(Count(999.7), "1.0k");
  EXPECT_EQ(Count(999'999), "1.00M");
  EXPECT_EQ(Duration(350'000), "350 us");
  EXPECT_EQ(Duration(2'100'000'000), "2.1 s");
  EXPECT_EQ(Duration(192'000'000'000), "3m 12s");
  EXPECT_EQ(Duration(5ULL * 3600 * 1'000'000'000), "5h 00m");
}

TEST(UnitsTest, SmallPercentagesAreNotShownAsZero) {
  EXPECT_EQ(Percent(0), "0%");
  EXPECT_EQ(Percent(0.004), "0.4%");
  EXPECT_EQ(Percent(0.97), "97%");
}

TEST(TableTest, NumbersAreAlignedRightAndLinesEndWithoutSpaces) {
  Table table({">PID", "NAME"});
  table.Add({"7", "trainer"});
  table.Add({"4242", "a"});
  EXPECT_EQ(table.ToString(), " PID  NAME\n   7  trainer\n4242  a\n");
}

TEST(TableTest, ColumnsAreCountedInCharacters) {
  Table table({"NAME", ">PID"});
  table.Add({"größe", "7"});
  table.Add({"train", "8"});
  EXPECT_EQ(table.ToString(), "NAME   PID\ngröße    7\ntrain    8\n");
}

TEST(JsonTest, NumbersAreNumbersAndUnmeasuredFieldsAreLeftOut) {
  v1::Daemon daemon;
  daemon.set_version("0.1");
  daemon.set_uptime_ns(1ULL << 40);
  const std::string text = ToJson(daemon);
  EXPECT_THAT(text, testing::HasSubstr("\"uptime_ns\":1099511627776"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("cpu_ns")));
  daemon.set_cpu_ns(5);
  EXPECT_THAT(ToJson(daemon), testing::HasSubstr("\"cpu_ns\":5"));
}

TEST(JsonTest, WhatIsNoNumberInJsonIsAString) {
  v1::Device device;
  device.set_temperature_celsius(48.5);
  device.set_power_watts(std::numeric_limits<double>::infinity());
  device.set_frequency_mhz(std::numeric_limits<double>::quiet_NaN());
  const std::string text = ToJson(device);
  EXPECT_THAT(text, testing::HasSubstr("\"temperature_celsius\":48.5,\"power_watts\":\"Infinity\""));
  EXPECT_THAT(text, testing::HasSubstr("\"frequency_mhz\":\"NaN\""));
}

TEST(JsonTest, RealsKeepTheirDigits) {
  v1::Device device;
  device.set_temperature_celsius(0.1);
  device.set_power_watts(312.48712345678);
  device.set_frequency_mhz(1e300);
  EXPECT_THAT(ToJson(device),
              testing::HasSubstr("\"temperature_celsius\":0.1,\"power_watts\":312.48712345678"));
  EXPECT_THAT(ToJson(device), testing::HasSubstr("\"frequency_mhz\":1e+300"));
}

TEST(JsonTest, NamesFromClientsCannotBreakOut) {
  EXPECT_EQ(JsonString("a\"\\\n"), "\"a\\\"\\\\\\u000a\"");
  EXPECT_EQ(JsonString("größe"), "\"größe\"");
  EXPECT_EQ(JsonString("\x7f\u009b\u202e\xff"), R"("\u007f\u009b\u202e\ufffd")") << "not for a terminal";
}

TEST(JsonTest, ADocumentBeginsWithItsSchema) {
  EXPECT_EQ(Document("{\"a\":1}"), "{\"schema\":\"xpuctl/1\",\"a\":1}\n");
  EXPECT_EQ(Document("{}"), "{\"schema\":\"xpuctl/1\"}\n");
}

TEST(CsvTest, FieldsAreQuotedAsRfc4180Says) {
  EXPECT_EQ(CsvField("plain"), "plain");
  EXPECT_EQ(CsvField("a,b"), "\"a,b\"");
  EXPECT_EQ(CsvField("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(CsvField("two\nlines"), "two?lines");
}

TEST(CsvTest, WhatIsNotMeasuredIsEmptyAndListsAreLeftOut) {
  v1::ListDevicesResponse list;
  list.add_devices()->set_name("a, b");
  const std::string text = CsvOf(7, list.devices()).ToString(true);
  EXPECT_THAT(text, testing::StartsWith("time_ns,index,name,kind,"));
  EXPECT_THAT(text, testing::HasSubstr("\n7,0,\"a, b\",,"));
  EXPECT_THAT(text, testing::EndsWith(",,,0,\n")) << "executor_pid and what follows, but peer_bytes";
  EXPECT_THAT(Csv::Of(v1::Session::descriptor()).ToString(true), testing::Not(testing::HasSubstr("devices")));
}

constexpr uint64_t kMiB = 1 << 20;

// The memory of two tenants that do not fit on a device together.
v1::ListMemoryResponse FullDevice(uint32_t device = 0) {
  const auto gibibytes = [](double count) { return static_cast<uint64_t>(count * 1024) * kMiB; };
  v1::ListMemoryResponse list;
  v1::TenantMemory& web = *list.add_tenants();
  web.set_device(device);
  web.set_tenant("claim:web");
  web.set_holds_bytes(gibibytes(8.2));
  web.set_on_device_bytes(gibibytes(1.3));
  web.set_shared_bytes(gibibytes(1));
  web.set_sharers(8);
  web.set_cached_bytes(96 * kMiB);
  web.set_saved_bytes(gibibytes(7));
  v1::TenantMemory& user = *list.add_tenants();
  user.set_device(device);
  user.set_tenant("uid:1000");
  user.set_holds_bytes(gibibytes(24));
  user.set_on_device_bytes(gibibytes(11.9));
  user.set_moved_out_bytes(gibibytes(12.1));
  user.set_moved_in_bytes_per_s(5'100'000'000);
  user.set_moved_out_bytes_per_s(2'200'000);
  user.set_moved_in_total_bytes(gibibytes(100));
  user.mutable_stalls()->add_counts(2);
  user.mutable_stalls()->add_counts(1);
  user.mutable_stalls()->set_sum_ns(2'100'000'000);
  v1::DeviceMemory& of_all = *list.add_devices();
  of_all.set_device(device);
  of_all.set_device_bytes(gibibytes(16));
  of_all.set_on_device_bytes(gibibytes(14));
  of_all.set_host_bytes(gibibytes(12.1));
  of_all.set_host_limit_bytes(gibibytes(64));
  of_all.set_turn_ns(300'000'000);
  return list;
}

TEST(MemoryTest, ShowsWhatEachTenantHasAndThenTheDevice) {
  EXPECT_EQ(MemoryText(FullDevice()),
            "TENANT        HOLDS  ON DEVICE  MOVED OUT        SHARED    CACHED      IN/S     OUT/S\n"
            "claim:web   8.2 GiB    1.3 GiB        0 B  1.0 GiB by 8  96.0 MiB       0 B       0 B\n"
            "uid:1000   24.0 GiB   11.9 GiB   12.1 GiB           0 B       0 B  5.1 GB/s  2.2 MB/s\n"
            "device 0: 14.0 of 16.0 GiB; host 12.1 of 64.0 GiB; merging saves 7.0 GiB; turns of 0.3 s\n");
  const std::string wide = MemoryText(FullDevice(), true);
  EXPECT_THAT(wide, testing::StartsWith("DEVICE  TENANT "));
  EXPECT_THAT(wide, testing::ContainsRegex("  SAVED  COPIED AT WRITE +IN  OUT  STALLS  STALLED\n"));
  EXPECT_THAT(wide, testing::HasSubstr("  100.0 GiB  0 B       3    2.1 s\n"));
}

TEST(MemoryTest, TheLineOfADeviceSaysOnlyWhatApplies) {
  v1::ListMemoryResponse list;
  v1::DeviceMemory& device = *list.add_devices();
  device.set_device_bytes(16384 * kMiB);
  device.set_on_device_bytes(512 * kMiB);
  EXPECT_EQ(
      MemoryText(list),
      "TENANT  HOLDS  ON DEVICE  MOVED OUT  SHARED  CACHED  IN/S  OUT/S\ndevice 0: 512.0 MiB of 16.0 GiB\n");
  device.set_host_limit_bytes(1024 * kMiB);
  device.set_file_bytes(3 * kMiB);
  device.set_turn_ns(50'000'000);
  EXPECT_THAT(MemoryText(list),
              testing::EndsWith(
                  "\ndevice 0: 512.0 MiB of 16.0 GiB; host 0 B of 1.0 GiB; files 3.0 MiB; turns of 50 ms\n"));
}

TEST(MemoryTest, SeveralDevicesAreNamed) {
  v1::ListMemoryResponse list = FullDevice();
  list.MergeFrom(FullDevice(1));
  EXPECT_THAT(MemoryText(list), testing::AllOf(testing::StartsWith("DEVICE  TENANT "),
                                               testing::HasSubstr("\n     1  claim:web "),
                                               testing::HasSubstr("\ndevice 1: 14.0 of 16.0 GiB; ")));
  v1::ListMemoryResponse second = list;
  ASSERT_TRUE(KeepDevices({1}, second).ok());
  EXPECT_EQ(ToJson(second), ToJson(FullDevice(1)));
  ASSERT_TRUE(KeepDevices({}, list).ok());
  EXPECT_EQ(list.devices_size(), 2);
  EXPECT_EQ(KeepDevices({0, 2}, list).message(), "there is no device 2; there are 2");
}

TEST(MemoryTest, SeveralHostsAreNamed) {
  const v1::ListMemoryResponse list = FullDevice();
  const std::string text = HostsText({{"a", &list}, {"b", &list}}, false);
  EXPECT_THAT(text, testing::StartsWith("HOST  DEVICE  TENANT "));
  EXPECT_THAT(text, testing::HasSubstr("\nb          0  uid:1000 "));
  EXPECT_THAT(text, testing::HasSubstr("\na device 0: 14.0 of 16.0 GiB; host "));
  EXPECT_THAT(text, testing::HasSubstr("\nb device 0: 14.0 of 16.0 GiB; host "));
}

TEST(ViewsTest, WhatIsNotMeasuredIsADashAndWideSaysWhy) {
  v1::GetStatusResponse status;
  status.add_devices();
  EXPECT_THAT(StatusText(status), testing::HasSubstr("resident    -\n"));
  EXPECT_THAT(StatusText(status, true),
              testing::HasSubstr("resident    -  (this daemon does not report it)\n"));
  EXPECT_THAT(StatusText(status, true),
              testing::HasSubstr("executor  -  (the device has no process of its own)"));
  v1::ListDevicesResponse list;
  v1::Device& device = *list.add_devices();
  device.set_kernels_compiled(0);
  device.set_executors_replaced(1);
  EXPECT_THAT(DevicesText(list), testing::Not(testing::HasSubstr("replaced")));
  EXPECT_THAT(DevicesText(list, true), testing::EndsWith("-         1  the executor is being replaced\n"));
}

// A daemon that wishes its operator ill: red text, a line of its own, right to left.
TEST(ViewsTest, NothingThatTheDaemonSendsControlsTheTerminal) {
  const std::string name = "a\x1b[31m\nb\u009b\u202e";
  v1::GetStatusResponse status;
  status.mutable_daemon()->set_version(name);
  status.mutable_daemon()->set_socket(name);
  status.add_devices()->set_name(name);
  status.add_sessions()->set_client_name(name);
  v1::ListDevicesResponse devices;
  *devices.add_devices() = status.devices(0);
  v1::ListSessionsResponse sessions;
  *sessions.add_sessions() = status.sessions(0);
  v1::GetVersionResponse version;
  version.set_build(name);
  for (const std::string& text :
       {StatusText(status), DevicesText(devices), SessionsText(sessions), VersionText(version),
        TopText(status, Between(status, status)), StatusText(status, true), DevicesText(devices, true),
        SessionsText(sessions, true), StatusCsv(status).ToString(true),
        CsvOf(0, devices.devices()).ToString(true)}) {
    EXPECT_THAT(text, testing::HasSubstr("a?[31m?b??"));
    for (const char* control : {"\x1b", "\nb", "\u009b", "\u202e"})
      EXPECT_THAT(text, testing::Not(testing::HasSubstr(control)));
  }
}

v1::GetStatusResponse Sample(uint64_t time, uint64_t device_busy, uint64_t first_busy, uint64_t second_busy) {
  v1::GetStatusResponse sample;
  sample.set_time_ns(time);
  v1::Device* device = sample.add_devices();
  device->set_busy_ns(device_busy);
  device->set_commands_completed(device_busy / 100);
  for (const auto& [id, busy] : {std::pair(1, first_busy), std::pair(2, second_busy)}) {
    v1::Session* session = sample.add_sessions();
    session->set_id(id);
    session->set_busy_ns(busy);
  }
  return sample;
}

TEST(QueryTest, ValuesAreRoundedQuotedAndMarkedWhereNotMeasured) {
  v1::GetStatusResponse status;
  v1::Device& device = *status.add_devices();
  device.set_name("a, b");
  device.set_memory_total_bytes((3 << 20) + (1 << 19));
  device.set_memory_used_bytes(5 << 20);
  DeviceRates rates = {&device, 0.996};
  const auto fields =
      ParseQueryFields("name,memory.total,memory.free,utilization.gpu,power.draw,xpud.executor_pid");
  ASSERT_TRUE(fields.ok()) << fields.status();
  EXPECT_EQ(QueryLine(*fields, {status, rates}, true), "\"a, b\", 4 MiB, 0 MiB, 100 %, [N/A], [N/A]\n");
  EXPECT_EQ(QueryLine(*fields, {status, rates}, false), "\"a, b\", 4, 0, 100, [N/A], [N/A]\n");
}

TEST(DoctorTest, SaysWhatASocketsOwnerHasToDo) {
  SocketFacts facts = {"/run/xpud/xpud.sock", 0660, 0750, "xpud", "users", true};
  EXPECT_EQ(JudgeSocket(facts).health, Health::kOk);
  facts.may_connect = false;
  EXPECT_EQ(JudgeSocket(facts).health, Health::kFail);
  EXPECT_THAT(JudgeSocket(facts).remedy, testing::HasSubstr("adduser $USER users"));
  facts = {"/run/xpud/xpud.sock", 0666, 0755, "xpud", "users", true};
  EXPECT_EQ(JudgeSocket(facts).health, Health::kWarn);
  facts.folder_mode = 0700;
  EXPECT_EQ(JudgeSocket(facts).health, Health::kOk) << "nobody else gets there";
}

TEST(DoctorTest, FindsThatNobodyLooksAfterTheClaimsOfEngines) {
  EXPECT_EQ(JudgeAgent({}).health, Health::kOk);
  EXPECT_EQ(JudgeAgent({.pid = 7, .claims = 3}).found, "pid 7; 3 claims of engines");
  EXPECT_EQ(JudgeAgent({.installed = true}).found, "installed, off");
  const Check check = JudgeAgent({.installed = true, .claims = 3});
  EXPECT_EQ(check.health, Health::kWarn);
  EXPECT_THAT(check.remedy, testing::HasSubstr("systemctl start xpud-node-agent"));
}

TEST(DoctorTest, NamesTheFirstThingThatNvidiasDriverLacks) {
  NvidiaFacts facts = {.library = "libcuda.so.1", .load_error = "not found"};
  EXPECT_EQ(JudgeNvidia(facts).health, Health::kOk) << "there is no such GPU";
  facts.on_the_bus = 1;
  EXPECT_THAT(JudgeNvidia(facts).remedy, testing::HasSubstr("modprobe nvidia"));
  facts.nodes = 1;
  facts.control = true;
  EXPECT_THAT(JudgeNvidia(facts).remedy, testing::HasSubstr("nvidia-modprobe -u"));
  facts.uvm = true;
  EXPECT_THAT(JudgeNvidia(facts).remedy, testing::HasSubstr("may not read and write"));
  facts.permitted = true;
  EXPECT_THAT(JudgeNvidia(facts).remedy, testing::HasSubstr("not found"));
  EXPECT_EQ(JudgeNvidia(facts).health, Health::kFail);
  facts.load_error = "";
  EXPECT_EQ(JudgeNvidia(facts).health, Health::kOk);
  EXPECT_EQ(JudgeNvidia(facts).remedy, "");
}

TEST(DoctorTest, ACacheWantsAnOwnerAndRoom) {
  FolderFacts facts = {
      .path = "/c", .exists = true, .mine = true, .mode = 0700, .free_bytes = uint64_t{2} << 30};
  EXPECT_EQ(JudgeCache(facts).health, Health::kOk);
  facts.free_bytes = 1 << 20;
  EXPECT_THAT(JudgeCache(facts).remedy, testing::HasSubstr("free some space"));
  facts.mine = false;
  EXPECT_THAT(JudgeCache(facts).remedy, testing::HasSubstr("another user"));
  facts.exists = false;
  EXPECT_EQ(JudgeCache(facts).health, Health::kOk);
}

TEST(RatesTest, AreDifferencesOverTheDaemonsTimeBusiestFirst) {
  const auto earlier = Sample(1'000'000'000, 1000, 100, 100),
             later = Sample(3'000'000'000, 1'000'001'000, 100, 500'000'100);
  const Rates rates = Between(earlier, later);
  EXPECT_DOUBLE_EQ(rates.seconds, 2);
  EXPECT_NEAR(rates.devices[0].busy, 0.5, 1e-6);
  EXPECT_NEAR(rates.devices[0].commands, 5e6, 1);
  ASSERT_EQ(rates.sessions.size(), 2u);
  EXPECT_EQ(rates.sessions[0].session->id(), 2u);
  EXPECT_NEAR(rates.sessions[0].busy, 0.25, 1e-6);
  EXPECT_FALSE(rates.daemon_cpu.has_value());
}

TEST(RatesTest, ASessionThatOpenedInBetweenCountsFromItsStart) {
  auto earlier = Sample(1'000'000'000, 0, 0, 0);
  earlier.mutable_sessions()->RemoveLast();
  const auto later = Sample(2'000'000'000, 0, 0, 100'000'000);
  EXPECT_NEAR(Between(earlier, later).sessions[0].busy, 0.1, 1e-6);
}

}  // namespace
}  // namespace xpud::xpuctl
