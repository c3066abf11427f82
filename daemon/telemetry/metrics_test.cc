#include "daemon/telemetry/metrics.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace xpud::telemetry {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

v1::GetStatusResponse WithSession(const std::string& name) {
  v1::GetStatusResponse snapshot;
  v1::Session& session = *snapshot.add_sessions();
  session.set_id(7);
  session.set_uid(1000);
  session.set_tenant("uid:1000");
  session.set_client_name(name);
  session.set_busy_ns(1'500'000'000);
  session.set_uploaded_bytes(12);
  return snapshot;
}

v1::GetStatusResponse WithDevice(const std::string& kind) {
  v1::GetStatusResponse snapshot;
  v1::Device& device = *snapshot.add_devices();
  device.set_kind(kind);
  device.set_name("A");
  device.set_vendor("v");
  device.set_memory_total_bytes(80);
  return snapshot;
}

TEST(Metrics, SayHowLongATenantWasHeldBack) {
  v1::GetStatusResponse snapshot;
  v1::TenantTimes& times = *snapshot.add_tenant_times();
  times.set_tenant("claim:night");
  v1::HeldTime& held = *times.add_held();
  held.set_cause("cap");
  held.set_ns(2'500'000'000);
  EXPECT_THAT(
      MetricsText(snapshot, Format::kPrometheus),
      HasSubstr("xpud_claim_held_seconds_total{hw_id=\"0\",tenant=\"claim:night\",cause=\"cap\"} 2.5"));
}

TEST(Metrics, SayWhereATenantsMemoryIs) {
  v1::GetStatusResponse snapshot;
  v1::DeviceMemory& device = *snapshot.add_device_memory();
  device.set_device(1);
  device.set_host_bytes(3);
  device.set_host_limit_bytes(64);
  device.set_file_bytes(4);
  device.set_turns(5);
  v1::TenantMemory& tenant = *snapshot.add_tenant_memory();
  tenant.set_device(1);
  tenant.set_tenant("claim:web");
  tenant.set_on_device_bytes(10);
  tenant.set_moved_out_bytes(11);
  tenant.set_cached_bytes(12);
  tenant.set_shared_bytes(13);
  tenant.set_saved_bytes(14);
  tenant.set_moved_in_total_bytes(15);
  tenant.set_moved_out_total_bytes(16);
  tenant.set_copied_at_write_bytes(17);
  for (int i = 0; i < 15; ++i) tenant.mutable_stalls()->add_counts(i == 1 ? 2 : 0);  // up to 4 us
  tenant.mutable_stalls()->set_sum_ns(6'000);
  const std::string text = MetricsText(snapshot, Format::kPrometheus);
  for (const char* const line : {"xpud_device_moved_out_host_bytes{hw_id=\"1\"} 3\n",
                                 "xpud_device_moved_out_host_limit_bytes{hw_id=\"1\"} 64\n",
                                 "xpud_device_moved_out_file_bytes{hw_id=\"1\"} 4\n",
                                 "xpud_device_memory_turns_total{hw_id=\"1\"} 5\n"})
    EXPECT_THAT(text, HasSubstr(std::string("\n") + line));
  const std::string labels = R"({hw_id="1",tenant="claim:web"} )";
  for (const auto& [name, value] :
       std::initializer_list<std::pair<std::string, int>>{{"on_device_bytes", 10},
                                                          {"out_bytes", 11},
                                                          {"cached_bytes", 12},
                                                          {"shared_bytes", 13},
                                                          {"saved_bytes", 14},
                                                          {"moved_in_bytes_total", 15},
                                                          {"moved_out_bytes_total", 16},
                                                          {"copied_at_write_bytes_total", 17},
                                                          {"stall_seconds_count", 2}})
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\nxpud_memory_", name, labels, value, "\n")));
  EXPECT_THAT(text, HasSubstr("xpud_memory_stall_seconds_sum" + labels + "0.000006\n"));
}

TEST(Metrics, OfASessionCarryWhoItIs) {
  const std::string text = MetricsText(WithSession("train"), Format::kPrometheus);
  const std::string labels = R"({session="7",tenant="uid:1000",client="train",uid="1000",pid="0"} )";
  EXPECT_THAT(text, HasSubstr("\nxpud_client_device_seconds_total" + labels + "1.5\n"));
  EXPECT_THAT(text, HasSubstr("\nxpud_client_uploaded_bytes_total" + labels + "12\n"));
  EXPECT_THAT(text, HasSubstr("\nxpud_sessions 1\n"));
}

TEST(Metrics, OfASessionThatEndedHaveNoSeries) {
  EXPECT_THAT(MetricsText({}, Format::kPrometheus), Not(HasSubstr("session=")));
}

TEST(Metrics, NamesThatClientsGaveThemselvesAreEscaped) {
  const std::string text = MetricsText(WithSession("a\"} 1\nxpud_sessions 9\\\xff"), Format::kPrometheus);
  EXPECT_THAT(text, HasSubstr(R"(client="a\"} 1?xpud_sessions 9\\?")"));
}

TEST(Metrics, SecondsAreExactWhateverTheirNumber) {
  v1::GetStatusResponse snapshot;
  for (const auto& [nanoseconds, seconds] : std::initializer_list<std::pair<uint64_t, const char*>>{
           {0, "0"}, {1, "0.000000001"}, {10'000'000'000, "10"}, {UINT64_MAX, "18446744073.709551615"}}) {
    snapshot.mutable_daemon()->set_uptime_ns(nanoseconds);
    EXPECT_THAT(MetricsText(snapshot, Format::kPrometheus),
                HasSubstr(std::string("\nxpud_uptime_seconds ") + seconds + "\n"));
  }
}

TEST(Metrics, DurationsAreClassicHistograms) {
  v1::GetStatusResponse snapshot = WithDevice("cpu");
  v1::TenantTimes& times = *snapshot.add_tenant_times();
  times.set_tenant("uid:1");
  for (int i = 0; i < 15; ++i) times.mutable_latency()->add_counts(i == 0 ? 2 : i == 14 ? 5 : 0);
  times.mutable_latency()->set_sum_ns(1'500'000'000);
  v1::StallCount& stalls = *snapshot.mutable_devices(0)->add_stalls();
  stalls.set_cause("its turn");
  stalls.set_count(3);
  for (const Format format : {Format::kPrometheus, Format::kOpenMetrics}) {
    const std::string text = MetricsText(snapshot, format);
    EXPECT_THAT(
        text,
        HasSubstr("\n# TYPE xpud_command_latency_seconds histogram\n"
                  "xpud_command_latency_seconds_bucket{hw_id=\"0\",tenant=\"uid:1\",le=\"0.000001\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("tenant=\"uid:1\",le=\"67.108864\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("tenant=\"uid:1\",le=\"+Inf\"} 7\n"
                                "xpud_command_latency_seconds_sum{hw_id=\"0\",tenant=\"uid:1\"} 1.5\n"
                                "xpud_command_latency_seconds_count{hw_id=\"0\",tenant=\"uid:1\"} 7\n"));
    EXPECT_THAT(text, Not(HasSubstr("xpud_command_duration_seconds_count"))) << "it was not measured";
    EXPECT_THAT(text, HasSubstr("\nxpud_stalls_total{hw_id=\"0\",cause=\"its turn\"} 3\n"));
  }
}

TEST(Metrics, OfGpusHaveOpenTelemetrysNamesToo) {
  const std::string gpu = MetricsText(WithDevice("gpu"), Format::kPrometheus);
  EXPECT_THAT(
      gpu,
      HasSubstr("\nhw_gpu_memory_limit_bytes{hw_id=\"0\",hw_name=\"A\",hw_type=\"gpu\",vendor=\"v\"} 80\n"));
  const std::string cpu = MetricsText(WithDevice("cpu"), Format::kPrometheus);
  EXPECT_THAT(cpu, Not(HasSubstr("hw_gpu_memory_limit_bytes{")));
  EXPECT_THAT(cpu, HasSubstr("\nxpud_device_memory_limit_bytes{"));
}

TEST(Metrics, WhatIsNotMeasuredIsAbsent) {
  v1::GetStatusResponse snapshot = WithDevice("gpu");
  EXPECT_THAT(MetricsText(snapshot, Format::kPrometheus), Not(HasSubstr("xpud_device_executor_up{")));
  EXPECT_THAT(MetricsText(snapshot, Format::kPrometheus), Not(HasSubstr("\nprocess_cpu_seconds_total ")));
  snapshot.mutable_devices(0)->set_executors_replaced(2);
  EXPECT_THAT(MetricsText(snapshot, Format::kPrometheus), HasSubstr("vendor=\"v\"} 2\n"));
  EXPECT_THAT(MetricsText(snapshot, Format::kPrometheus), HasSubstr("xpud_device_executor_up{"));
}

TEST(Metrics, OfOpenMetricsEndWithItsMark) {
  const std::string text = MetricsText(WithSession("a"), Format::kOpenMetrics);
  EXPECT_THAT(text, EndsWith("\n# EOF\n"));
  EXPECT_THAT(text,
              HasSubstr("# TYPE xpud_client_device_seconds counter\nxpud_client_device_seconds_total{"));
  EXPECT_THAT(MetricsText({}, Format::kPrometheus), Not(HasSubstr("EOF")));
}

TEST(Metrics, CountersAreThoseThatEndInTotal) {
  const std::string text = MetricsText({}, Format::kPrometheus);
  std::set<std::string> names;
  for (size_t at = 0; (at = text.find("# TYPE ", at)) != std::string::npos; ++at) {
    const std::string line = text.substr(at + 7, text.find('\n', at) - at - 7);
    const std::string name = line.substr(0, line.find(' '));
    EXPECT_TRUE(names.insert(name).second) << name << " twice";
    EXPECT_EQ(name.ends_with("_total"), line.ends_with(" counter")) << line;
  }
  EXPECT_GT(names.size(), 30);
}

}  // namespace
}  // namespace xpud::telemetry
