// Formats what `top` shows.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/text.h"
#include "tools/xpuctl/columns.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

std::string Bar(double ratio, size_t width) {
  const auto filled = static_cast<size_t>(std::lround(ratio * static_cast<double>(width)));
  return "[" + std::string(filled, '#') + std::string(width - filled, ' ') + "]";
}

// Formats the available sensors briefly.
std::string Sensors(const v1::Device& device) {
  std::string text;
  if (device.has_temperature_celsius())
    absl::StrAppendFormat(&text, ", %.0f C", device.temperature_celsius());
  if (device.has_power_watts()) absl::StrAppendFormat(&text, ", %.0f W", device.power_watts());
  if (device.has_frequency_mhz()) absl::StrAppendFormat(&text, ", %.0f MHz", device.frequency_mhz());
  if (!device.throttle_reasons().empty())
    absl::StrAppend(&text, ", throttled by ", PrintableText(device.throttle_reasons()));
  return text;
}

// Replaces the uid of "uid:1000/team-a" by the user's name, "alice/team-a".
std::string TenantOf(const v1::TenantTotal& total) {
  constexpr std::string_view kUid = "uid:";
  const std::string_view name = total.tenant();
  if (!name.starts_with(kUid)) return std::string(name);
  const std::string_view rest = name.substr(kUid.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const auto uid = ParseUser(std::string(rest.substr(0, slash)));
  return uid ? UserName(*uid) + std::string(rest.substr(slash)) : std::string(name);
}

std::string DeviceLine(const DeviceRates& row) {
  const v1::Device& device = *row.device;
  return absl::StrCat("device ", device.index(), " ", PrintableText(device.name()), "  ", Bar(row.busy, 20),
                      " ", Percent(row.busy), " busy, ", Count(row.commands), " commands/s, memory ",
                      SizeCell(device.memory_used_bytes()), " of ", SizeCell(device.memory_total_bytes()),
                      ", pool ", SizeCell(device.pool_bytes()), Sensors(device), "\n");
}

// What is compiled of clients' loop kernels; the sessions say for whom.
std::string Compiles(const v1::Compiler& compiler) {
  if (compiler.running() + compiler.waiting() == 0) return "";
  return absl::StrCat(", compiling ", compiler.running(),
                      compiler.overdue() > 0 ? absl::StrCat(" (", compiler.overdue(), " for long)") : "",
                      ", ", compiler.waiting(), " waiting");
}

std::string DaemonLine(const v1::GetStatusResponse& status, const Rates& rates) {
  const v1::Daemon& daemon = status.daemon();
  return absl::StrCat("xpud ", PrintableText(daemon.version()), ", pid ", daemon.pid(), ", up ",
                      Duration(daemon.uptime_ns()), ", ", status.sessions_size(),
                      status.sessions_size() == 1 ? " session" : " sessions",
                      daemon.drained() ? ", drained" : "", ", CPU ",
                      rates.daemon_cpu ? Percent(*rates.daemon_cpu) : "-", Compiles(daemon.compiler()), "\n");
}

bool HasHosts(const std::vector<TopSample>& samples) {
  return std::any_of(samples.begin(), samples.end(), [](const TopSample& s) { return !s.host.empty(); });
}

constexpr Column<SessionRates> kColumns[] = {
    {">SESSION", [](const SessionRates& row) { return absl::StrCat(row.session->id()); }},
    {">PID", [](const SessionRates& row) { return absl::StrCat(row.session->pid()); }},
    {"USER",
     [](const SessionRates& row) {
       const v1::Session& session = *row.session;
       return session.has_claim() ? "claim:" + session.claim() : UserName(session.uid());
     }},
    {"NAME", [](const SessionRates& row) { return row.session->client_name(); }},
    {">DEVICE", [](const SessionRates& row) { return Percent(row.busy); }},
    {">COMMANDS/S", [](const SessionRates& row) { return Count(row.commands); }},
    {">KERNELS/S", [](const SessionRates& row) { return Count(row.kernels); }},
    {">WAITING",
     [](const SessionRates& row) {
       return CountCell(row.session->commands_submitted() - row.session->commands_completed());
     }},
    {">WAIT", [](const SessionRates& row) { return Percent(row.waiting); }},
    {">COMPILING", [](const SessionRates& row) { return CountCell(row.session->kernels_pending()); }},
    {">MEMORY", [](const SessionRates& row) { return SizeCell(row.session->memory_bytes()); }},
    {">PEAK", [](const SessionRates& row) { return SizeCell(row.session->memory_peak_bytes()); }},
    {">UP/S", [](const SessionRates& row) { return Bytes(row.uploaded); }},
    {">DOWN/S", [](const SessionRates& row) { return Bytes(row.downloaded); }},
    {">AGE", [](const SessionRates& row) { return Duration(row.session->age_ns()); }},
    {">COMPILED IN", [](const SessionRates& row) { return Duration(row.session->compile_ns()); }, true},
    {">HOST MEM", [](const SessionRates& row) { return SizeCell(row.session->host_memory_bytes()); }, true},
    {">BUFFERS", [](const SessionRates& row) { return absl::StrCat(row.session->buffers()); }, true},
    {">ERRORS", [](const SessionRates& row) { return CountCell(row.session->errors()); }, true},
    {"WAITS FOR", [](const SessionRates& row) { return row.session->waiting_for(); }, true},
};

constexpr Column<TenantRates> kTenantColumns[] = {
    {"TENANT", [](const TenantRates& row) { return TenantOf(*row.tenant); }},
    {">SESSIONS", [](const TenantRates& row) { return absl::StrCat(row.tenant->sessions()); }},
    {">DEVICE", [](const TenantRates& row) { return Percent(row.busy); }},
    {">WAIT", [](const TenantRates& row) { return Percent(row.waiting); }},
    {">COMMANDS/S", [](const TenantRates& row) { return Count(row.commands); }},
    {">MEMORY", [](const TenantRates& row) { return SizeCell(row.tenant->memory_bytes()); }},
    {">DEVICE TIME", [](const TenantRates& row) { return Duration(row.tenant->busy_ns()); }},
    {">WAITED", [](const TenantRates& row) { return Duration(row.tenant->queue_wait_ns()); }},
    {">COMPILED IN", [](const TenantRates& row) { return Duration(row.tenant->compile_ns()); }, true},
    {">SHARED", [](const TenantRates& row) { return SizeCell(row.tenant->shared_bytes()); }, true},
    {">ERRORS", [](const TenantRates& row) { return CountCell(row.tenant->errors()); }},
};

}  // namespace

std::string TopText(const v1::GetStatusResponse& status, const Rates& rates, bool wide) {
  return TopText(std::vector<TopSample>{{"", &status, &rates}}, wide);
}

std::string TopText(const std::vector<TopSample>& samples, bool wide) {
  return TopHead(samples, wide) + "\n" + TopSessions(samples, BusiestFirst(samples), wide).ToString();
}

std::vector<TopRow> BusiestFirst(const std::vector<TopSample>& samples) {
  std::vector<TopRow> rows;
  for (const TopSample& sample : samples) {
    for (const SessionRates& session : sample.rates->sessions) rows.push_back({sample.host, &session});
  }
  std::sort(rows.begin(), rows.end(), [](const TopRow& a, const TopRow& b) {
    if (a.rates->busy != b.rates->busy) return a.rates->busy > b.rates->busy;
    return std::pair(a.host, a.rates->session->id()) < std::pair(b.host, b.rates->session->id());
  });
  return rows;
}

Table TopSessions(const std::vector<TopSample>& samples, const std::vector<TopRow>& rows, bool wide) {
  RowTable<SessionRates> table(kColumns, wide, HasHosts(samples));
  for (const TopRow& row : rows) table.Add(*row.rates, row.host);
  return table.table();
}

std::string TopHead(const std::vector<TopSample>& samples, bool wide) {
  const bool hosts = HasHosts(samples);
  std::string daemons, devices;
  RowTable<TenantRates> tenants(kTenantColumns, wide, hosts);
  size_t count = 0;
  for (const TopSample& sample : samples) {
    const std::string host = hosts ? PrintableText(sample.host) + "  " : "";
    daemons += host + DaemonLine(*sample.status, *sample.rates);
    for (const DeviceRates& row : sample.rates->devices) devices += host + DeviceLine(row);
    for (const TenantRates& row : sample.rates->tenants) tenants.Add(row, sample.host);
    count += sample.rates->tenants.size();
  }
  // If there is one tenant, its rates are those of its sessions.
  return absl::StrCat(daemons, "\n", devices, count > 1 || wide ? "\n" + tenants.ToString() : "");
}

std::string TopJson(const v1::GetStatusResponse& status, const Rates& rates) {
  std::string text = absl::StrFormat("{\"seconds\":%.6f", rates.seconds);
  if (rates.daemon_cpu) absl::StrAppendFormat(&text, ",\"daemon_cpu\":%.6f", *rates.daemon_cpu);
  text += ",\"devices\":[";
  for (const DeviceRates& row : rates.devices) {
    absl::StrAppendFormat(&text, "%s{\"index\":%d,\"busy\":%.6f,\"commands_per_second\":%.3f}",
                          &row == &rates.devices[0] ? "" : ",", row.device->index(), row.busy, row.commands);
  }
  text += "],\"sessions\":[";
  for (const SessionRates& row : rates.sessions) {
    absl::StrAppendFormat(
        &text,
        "%s{\"id\":%d,\"pid\":%d,\"client_name\":%s,\"busy\":%.6f,\"commands_per_second\":%.3f,"
        "\"kernels_per_second\":%.3f,"
        "\"uploaded_bytes_per_second\":%.1f,\"downloaded_bytes_per_second\":%.1f,\"waiting\":%.6f}",
        &row == &rates.sessions[0] ? "" : ",", row.session->id(), row.session->pid(),
        JsonString(row.session->client_name()), row.busy, row.commands, row.kernels, row.uploaded,
        row.downloaded, row.waiting);
  }
  text += "],\"tenants\":[";
  for (const TenantRates& row : rates.tenants) {
    absl::StrAppendFormat(&text,
                          "%s{\"tenant\":%s,\"busy\":%.6f,\"commands_per_second\":%.3f,\"waiting\":%.6f}",
                          &row == &rates.tenants[0] ? "" : ",", JsonString(row.tenant->tenant()), row.busy,
                          row.commands, row.waiting);
  }
  return absl::StrCat(text, "],\"status\":", ToJson(status), "}");
}

Csv TopCsv(const v1::GetStatusResponse& status, const Rates& rates) {
  Csv csv({"time_ns", "seconds", "what", "id", "pid", "name", "busy", "commands_per_second",
           "uploaded_bytes_per_second", "downloaded_bytes_per_second", "memory_bytes", "waiting"});
  const std::string time = absl::StrCat(status.time_ns()), seconds = absl::StrFormat("%.6f", rates.seconds);
  const auto number = [](double value) { return absl::StrFormat("%.6g", value); };
  for (const DeviceRates& row : rates.devices) {
    csv.Add({time, seconds, "device", absl::StrCat(row.device->index()), "", row.device->name(),
             number(row.busy), number(row.commands), "", "", absl::StrCat(row.device->memory_used_bytes()),
             ""});
  }
  for (const SessionRates& row : rates.sessions) {
    csv.Add({time, seconds, "session", absl::StrCat(row.session->id()), absl::StrCat(row.session->pid()),
             row.session->client_name(), number(row.busy), number(row.commands), number(row.uploaded),
             number(row.downloaded), absl::StrCat(row.session->memory_bytes()), number(row.waiting)});
  }
  for (const TenantRates& row : rates.tenants) {
    csv.Add({time, seconds, "tenant", "", "", row.tenant->tenant(), number(row.busy), number(row.commands),
             "", "", absl::StrCat(row.tenant->memory_bytes()), number(row.waiting)});
  }
  return csv;
}

}  // namespace xpud::xpuctl
