#include "tools/xpuctl/profile_stats.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

// When a session's commands ran on a device.
struct Work {
  uint64_t began_ns, ended_ns;
  const v1::ProfileInfo* session;
};

std::string NameOf(const v1::ProfileInfo& session) {
  return absl::StrCat("session ", session.session(), ", ", session.client_name());
}

// The work of all sessions on a device, by begin. Work of one session does not overlap.
std::vector<Work> WorkOn(uint32_t device, const ProfileData& profile) {
  std::vector<Work> work;
  for (const ProfiledSession& session : profile.sessions) {
    if (session.info.device() != device) continue;
    for (const v1::ProfiledCommand& command : session.commands)
      if (command.began_ns() != 0) work.push_back({command.began_ns(), command.ended_ns(), &session.info});
  }
  std::ranges::sort(work, {}, &Work::began_ns);
  return work;
}

// Adds the wait of a session from `from` to `to`, by the sessions that worked then. `from` grows.
void AddWait(uint64_t from, uint64_t to, const v1::ProfileInfo& session, const std::vector<Work>& work,
             size_t& at, std::map<std::string, uint64_t>& waits) {
  while (at < work.size() && work[at].ended_ns <= from) ++at;
  uint64_t left = to - from;
  for (size_t i = at; i < work.size() && work[i].began_ns < to; ++i) {
    if (work[i].session == &session) continue;
    const uint64_t begin = std::max(from, work[i].began_ns), end = std::min(to, work[i].ended_ns);
    if (begin >= end) continue;
    waits[NameOf(*work[i].session)] += end - begin;
    left -= std::min(left, end - begin);
  }
  if (left != 0) waits["the daemon"] += left;
}

// Like Duration, with two digits more below a millisecond.
std::string ShortDuration(uint64_t ns) {
  return ns < 1'000'000 ? absl::StrFormat("%.2f us", static_cast<double>(ns) / 1000) : Duration(ns);
}

std::string Rate(double per_second, const char* unit) {
  return per_second == 0 ? "" : absl::StrFormat("%.1f %s", per_second / 1e9, unit);
}

// The operations on the type of the command's output that the device can do in a second; 0: not known.
double OperationRate(const v1::ProfiledCommand& command, const v1::Device& device) {
  const std::string_view type = std::string_view(command.shapes()).substr(0, command.shapes().find('['));
  if (type == "float32") return static_cast<double>(device.peak_float_operations_per_s());
  if (type == "float16" || type == "bfloat16")
    return static_cast<double>(device.peak_half_operations_per_s());
  return 0;
}

// The least time in which the device could have done what the command did, of what is known.
double LeastNs(const v1::ProfiledCommand& command, const v1::Device& device) {
  const auto time = [](double amount, double per_second) {
    return per_second == 0 ? 0 : amount * 1e9 / per_second;
  };
  return std::max(
      time(static_cast<double>(command.bytes()), static_cast<double>(device.peak_memory_bytes_per_s())),
      time(static_cast<double>(command.operations()), OperationRate(command, device)));
}

double PerSecond(double amount, uint64_t ns) { return ns == 0 ? 0 : amount * 1e9 / static_cast<double>(ns); }

}  // namespace

ProfileStats StatsOf(const ProfileData& profile) {
  ProfileStats stats;
  std::map<std::pair<std::string, std::string>, ProfileRow> rows;
  std::map<uint32_t, std::vector<Work>> work;
  uint64_t first = UINT64_MAX, last = 0;
  for (const ProfiledSession& session : profile.sessions) {
    const uint32_t device = session.info.device();
    if (!work.contains(device)) work[device] = WorkOn(device, profile);
    uint64_t waited_until = 0;  // commands that wait at the same time count once
    size_t at = 0;
    for (const v1::ProfiledCommand& command : session.commands) {
      ++stats.commands;
      first = std::min(first, command.arrived_ns());
      last = std::max({last, command.ended_ns(), command.decoded_ns()});
      const uint64_t from = std::max(command.arrived_ns(), waited_until);
      if (from < command.decoded_ns())
        AddWait(from, command.decoded_ns(), session.info, work[device], at, stats.waits);
      if (!command.waited_for().empty() && command.submitted_ns() > command.decoded_ns())
        stats.waits[command.waited_for()] += command.submitted_ns() - command.decoded_ns();
      waited_until =
          std::max({waited_until, command.decoded_ns(), command.ended_ns(), command.submitted_ns()});
      if (command.device_ns() == 0) continue;
      ProfileRow& row = rows[{command.op(), command.kernel()}];
      ++row.calls;
      if (!command.exact()) ++stats.estimated;
      row.device_ns += command.device_ns();
      row.bytes += command.bytes();
      row.operations += static_cast<double>(command.operations());
      if (device < profile.devices.size()) row.least_ns += LeastNs(command, profile.devices[device]);
      stats.device_ns += command.device_ns();
    }
  }
  if (first < last) stats.span_ns = last - first;
  for (auto& [name, row] : rows) {
    std::tie(row.op, row.kernel) = name;
    stats.rows.push_back(std::move(row));
  }
  std::ranges::sort(stats.rows, std::greater(), &ProfileRow::device_ns);
  return stats;
}

std::string StatsText(const ProfileStats& stats) {
  Table table({"op", "kernel", ">calls", ">total", ">mean", ">share", ">bytes/s", ">operations/s", ">roof"});
  for (const ProfileRow& row : stats.rows) {
    table.Add({row.op, row.kernel, Count(static_cast<double>(row.calls)), ShortDuration(row.device_ns),
               ShortDuration(row.device_ns / row.calls),
               Percent(static_cast<double>(row.device_ns) / static_cast<double>(stats.device_ns)),
               Rate(PerSecond(static_cast<double>(row.bytes), row.device_ns), "GB/s"),
               Rate(PerSecond(row.operations, row.device_ns), "G/s"),
               row.least_ns == 0 ? "" : Percent(row.least_ns / static_cast<double>(row.device_ns))});
  }
  std::string text = table.ToString();
  absl::StrAppend(&text, "\n", stats.commands, " commands in ", Duration(stats.span_ns),
                  "; the device worked for ", Duration(stats.device_ns), "\n");
  if (stats.estimated != 0)
    absl::StrAppend(&text, "the times of ", stats.estimated, " commands on the device are estimates\n");
  for (const auto& [why, ns] : stats.waits)
    absl::StrAppend(&text, "waited ", Duration(ns), " for ", why, "\n");
  return text;
}

std::string StatsJson(const ProfileStats& stats) {
  std::string rows, waits;
  for (const ProfileRow& row : stats.rows) {
    absl::StrAppend(&rows, rows.empty() ? "" : ",", "{\"op\":", JsonString(row.op),
                    ",\"kernel\":", JsonString(row.kernel), ",\"calls\":", row.calls,
                    ",\"device_ns\":", row.device_ns, ",\"bytes\":", row.bytes,
                    ",\"operations\":", Whole(row.operations), ",\"least_ns\":", Whole(row.least_ns), "}");
  }
  for (const auto& [why, ns] : stats.waits)
    absl::StrAppend(&waits, waits.empty() ? "" : ",", JsonString(why), ":", ns);
  return absl::StrCat("{\"commands\":", stats.commands, ",\"span_ns\":", stats.span_ns,
                      ",\"device_ns\":", stats.device_ns, ",\"estimated\":", stats.estimated, ",\"rows\":[",
                      rows, "],\"wait_ns\":{", waits, "}}");
}

}  // namespace xpud::xpuctl
