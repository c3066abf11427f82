#include "tools/xpuctl/memory_text.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/base/text.h"
#include "tools/xpuctl/columns.h"

namespace xpud::xpuctl {
namespace {

// As copies are measured, in units of 1000.
std::string RateCell(uint64_t bytes_per_s) {
  constexpr std::array kUnits = {"kB/s", "MB/s", "GB/s", "TB/s"};
  if (bytes_per_s == 0) return "0 B";
  double rate = static_cast<double>(bytes_per_s) / 1e3;
  size_t unit = 0;
  for (; rate >= 999.95 && unit + 1 < kUnits.size(); ++unit) rate /= 1e3;
  return absl::StrFormat("%.1f %s", rate, kUnits[unit]);
}

std::string Shared(const v1::TenantMemory& tenant) {
  const std::string bytes = SizeCell(tenant.shared_bytes());
  return tenant.shared_bytes() == 0 ? bytes : absl::StrCat(bytes, " by ", tenant.sharers());
}

std::string Stalls(const v1::TenantMemory& tenant) {
  uint64_t count = 0;
  for (const uint64_t of_class : tenant.stalls().counts()) count += of_class;
  return CountCell(count);
}

constexpr Column<v1::TenantMemory> kColumns[] = {
    {">DEVICE", [](const v1::TenantMemory& tenant) { return absl::StrCat(tenant.device()); }},
    {"TENANT", [](const v1::TenantMemory& tenant) { return tenant.tenant(); }},
    {">HOLDS", [](const v1::TenantMemory& tenant) { return SizeCell(tenant.holds_bytes()); }},
    {">ON DEVICE", [](const v1::TenantMemory& tenant) { return SizeCell(tenant.on_device_bytes()); }},
    {">MOVED OUT", [](const v1::TenantMemory& tenant) { return SizeCell(tenant.moved_out_bytes()); }},
    {">SHARED", Shared},
    {">CACHED", [](const v1::TenantMemory& tenant) { return SizeCell(tenant.cached_bytes()); }},
    {">IN/S", [](const v1::TenantMemory& tenant) { return RateCell(tenant.moved_in_bytes_per_s()); }},
    {">OUT/S", [](const v1::TenantMemory& tenant) { return RateCell(tenant.moved_out_bytes_per_s()); }},
    {">SAVED", [](const v1::TenantMemory& tenant) { return SizeCell(tenant.saved_bytes()); }, true},
    {">COPIED AT WRITE",
     [](const v1::TenantMemory& tenant) { return SizeCell(tenant.copied_at_write_bytes()); }, true},
    {">IN", [](const v1::TenantMemory& tenant) { return SizeCell(tenant.moved_in_total_bytes()); }, true},
    {">OUT", [](const v1::TenantMemory& tenant) { return SizeCell(tenant.moved_out_total_bytes()); }, true},
    {">STALLS", Stalls, true},
    {">STALLED", [](const v1::TenantMemory& tenant) { return Duration(tenant.stalls().sum_ns()); }, true},
};

// All columns, or those without the device.
std::span<const Column<v1::TenantMemory>> ColumnsFor(bool names_device) {
  return std::span(kColumns).subspan(names_device ? 0 : 1);
}

// "14.0 of 16.0 GiB", or "512.0 MiB of 16.0 GiB".
std::string PartOf(uint64_t part, uint64_t whole) {
  const std::string text = SizeCell(part), of = SizeCell(whole);
  const size_t unit = text.find(' ');
  const bool same = text.substr(unit) == of.substr(of.find(' '));
  return absl::StrCat(same ? text.substr(0, unit) : text, " of ", of);
}

std::string TurnLength(uint64_t ns) {
  const double seconds = static_cast<double>(ns) / 1e9;
  return seconds < 0.1 ? Duration(ns) : absl::StrFormat("%.1f s", seconds);
}

std::string DeviceLine(const v1::DeviceMemory& device, const v1::ListMemoryResponse& list) {
  std::string text =
      absl::StrCat("device ", device.device(), ": ", PartOf(device.on_device_bytes(), device.device_bytes()));
  if (device.host_limit_bytes() != 0 || device.host_bytes() != 0)
    absl::StrAppend(&text, "; host ", PartOf(device.host_bytes(), device.host_limit_bytes()));
  if (device.file_bytes() != 0) absl::StrAppend(&text, "; files ", SizeCell(device.file_bytes()));
  uint64_t saved = 0;
  for (const v1::TenantMemory& tenant : list.tenants())
    if (tenant.device() == device.device()) saved += tenant.saved_bytes();
  if (saved != 0) absl::StrAppend(&text, "; merging saves ", SizeCell(saved));
  if (device.turn_ns() != 0) absl::StrAppend(&text, "; turns of ", TurnLength(device.turn_ns()));
  return text + "\n";
}

}  // namespace

absl::Status KeepDevices(const std::set<uint32_t>& devices, v1::ListMemoryResponse& list) {
  if (devices.empty()) return absl::OkStatus();
  for (const uint32_t wanted : devices) {
    if (std::ranges::none_of(list.devices(), [&](const auto& each) { return each.device() == wanted; }))
      return absl::InvalidArgumentError(
          absl::StrCat("there is no device ", wanted, "; there are ", list.devices_size()));
  }
  const auto remove = [&](auto& rows) {
    rows.erase(std::remove_if(rows.begin(), rows.end(),
                              [&](const auto& each) { return !devices.contains(each.device()); }),
               rows.end());
  };
  remove(*list.mutable_devices());
  remove(*list.mutable_tenants());
  return absl::OkStatus();
}

std::string MemoryText(const v1::ListMemoryResponse& list, bool wide) {
  const bool names_device = wide || list.devices_size() > 1;
  std::string text = TableOf<v1::TenantMemory>(ColumnsFor(names_device), list.tenants(), wide);
  for (const v1::DeviceMemory& device : list.devices()) text += DeviceLine(device, list);
  return text;
}

std::string HostsText(const HostList<v1::ListMemoryResponse>& answers, bool wide) {
  std::string text = TableOf<v1::TenantMemory>(
      ColumnsFor(true), answers, [](const auto& list) -> const auto& { return list.tenants(); }, wide);
  for (const auto& [host, list] : answers) {
    for (const v1::DeviceMemory& device : list->devices())
      absl::StrAppend(&text, PrintableText(host), " ", DeviceLine(device, *list));
  }
  return text;
}

}  // namespace xpud::xpuctl
