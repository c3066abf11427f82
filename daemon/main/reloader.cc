#include "daemon/main/reloader.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/clock.h"

namespace xpud {
namespace {

using config::Options;

// Removes quotas that are in `before` but not in `now`. Quotas that xpuctl set for other users stay.
void SetQuotas(const Options* before, const Options& now, memory::Ledger& ledger) {
  if (now.memory_quota || (before != nullptr && before->memory_quota))
    ledger.SetDefaultQuota(now.memory_quota);
  if (before != nullptr) {
    for (const config::TenantQuota& quota : before->quotas) ledger.SetTenantQuota(quota.tenant, std::nullopt);
  }
  for (const config::TenantQuota& quota : now.quotas) ledger.SetTenantQuota(quota.tenant, quota.bytes);
}

void Apply(const Options* before, const Options& now, stream::DeviceState& state) {
  SetQuotas(before, now, state.pool->ledger());
  state.library->SetLimits(static_cast<size_t>(now.kernel_limit), now.cache_limit);
  state.device->SetCommandLimit(std::chrono::milliseconds(now.command_limit_ms));
  state.pool->residency().SetTurnLimit(uint64_t{now.turn_limit_ms} * 1'000'000);
}

std::string Shown(const config::OptionRow& row, const Options& options) {
  const std::string value = row.type.show(options);
  return value.empty() ? row.Default() : value;
}

std::string Shown(const std::vector<config::TenantQuota>& quotas) {
  std::string text;
  for (const config::TenantQuota& quota : quotas)
    absl::StrAppend(&text, text.empty() ? "" : ", ", quota.tenant.Text(), ": ", quota.bytes, "B");
  return text.empty() ? "none" : text;
}

void LogChange(const std::string& key, const std::string& from, const std::string& to) {
  spdlog::info("config_changed key={} from=\"{}\" to=\"{}\"", key, from, to);
}

}  // namespace

void LogOverridden(const config::Configuration& configuration) {
  for (const std::string& key : configuration.overridden)
    spdlog::warn("config_overridden key={} by=\"the command line\"", key);
}

uint64_t Reloader::StallAfterNs(const Options& options) {
  return static_cast<uint64_t>(options.stall_after_seconds) * 1'000'000'000;
}

service::Listener::Limits Reloader::LimitsOf(const Options& options) {
  const uint64_t machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  service::Listener::Limits limits;
  limits.host_memory = options.host_memory_limit.value_or(machine / 2);
  limits.user_clients = static_cast<size_t>(options.user_clients);
  if (options.exit_when_idle_seconds)
    limits.exit_when_idle = std::chrono::seconds(*options.exit_when_idle_seconds);
  return limits;
}

void Reloader::SetUp(stream::DeviceState& device) const { Apply(nullptr, now_.options, device); }

void Reloader::Reload(lane::Lanes& lanes, service::Listener& listener, const telemetry::Notifier& notifier) {
  notifier.Notify(absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", NowNs() / 1000));
  const auto found = line_.Complete();
  if (found.ok()) {
    const Options before = now_.options;
    LogOverridden(*found);
    Adopt(*found);
    spdlog::set_level(spdlog::level::from_str(now_.options.log_level));
    listener.SetLimits(LimitsOf(now_.options));
    lanes.CallEach([&](lane::Lane& lane) {
      Apply(&before, now_.options, lane.state());
      lane.stalls().SetAfter(StallAfterNs(now_.options));
    });
    spdlog::info("config_reloaded path={}", line_.config_path().empty() ? "none" : line_.config_path());
  } else {
    for (const auto problem : absl::StrSplit(found.status().message(), '\n'))
      spdlog::error("config_refused changed=nothing error=\"{}\"", std::string(problem));
  }
  notifier.Notify("READY=1");
}

void Reloader::Adopt(const config::Configuration& found) {
  MutexLock lock(mutex_);
  for (const config::OptionRow& row : config::OptionRows()) {
    const std::string from = Shown(row, now_.options), to = Shown(row, found.options);
    if (from == to) continue;
    if (row.live) {
      LogChange(std::string(row.name), from, to);
      row.type.copy(found.options, now_.options);
    } else {
      spdlog::warn("config_pending key={} from=\"{}\" to=\"{}\" note=\"takes effect after a restart\"",
                   row.name, from, to);
    }
  }
  if (now_.options.quotas != found.options.quotas)
    LogChange(std::string(config::kQuotasKey), Shown(now_.options.quotas), Shown(found.options.quotas));
  now_.options.quotas = found.options.quotas;
  now_.origins = found.origins;
  found_ = found;
}

std::vector<service::ConfigValue> Reloader::Values() const {
  MutexLock lock(mutex_);
  std::vector<service::ConfigValue> values;
  const auto origin = [&](std::string_view name) {
    const auto at = now_.origins.find(name);
    return at == now_.origins.end() ? std::string("default") : at->second;
  };
  for (const config::OptionRow& row : config::OptionRows()) {
    if (row.where == config::OptionRow::kCommandLineOnly && row.name != "config") continue;
    service::ConfigValue& value = values.emplace_back();
    value.key = row.name;
    value.value = Shown(row, now_.options);
    value.origin = origin(row.name);
    value.live = row.live;
    if (const std::string next = Shown(row, found_.options); next != value.value) value.pending = next;
  }
  values.push_back(
      {std::string(config::kQuotasKey), Shown(now_.options.quotas), origin(config::kQuotasKey), true, ""});
  return values;
}

}  // namespace xpud
