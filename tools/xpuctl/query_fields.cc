#include "tools/xpuctl/query_fields.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "proto/base/pci_address.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/csv.h"

namespace xpud::xpuctl {
namespace {

using Value = std::optional<std::string>;

std::string Mebibytes(uint64_t bytes) { return absl::StrCat((bytes + (1 << 19)) >> 20); }

Value Measured(bool has, double value, int decimals) {
  if (!has) return std::nullopt;
  return absl::StrFormat("%.*f", decimals, value);
}

Value CoreClock(const QuerySample& sample) {
  return Measured(sample.device().has_frequency_mhz(), sample.device().frequency_mhz(), 0);
}

constexpr QueryField kFields[] = {
    {"timestamp", "", "", "local time of the reading",
     [](const QuerySample&) -> Value {
       return absl::FormatTime("%Y/%m/%d %H:%M:%E3S", absl::Now(), absl::LocalTimeZone());
     }},
    {"driver_version", "", "", "the device's driver library and version",
     [](const QuerySample& sample) -> Value { return sample.device().driver(); }},
    {"count", "", "", "number of devices",
     [](const QuerySample& sample) -> Value { return absl::StrCat(sample.status.devices_size()); }},
    {"index", "", "", "number of the device, as for clients",
     [](const QuerySample& sample) -> Value { return absl::StrCat(sample.device().index()); }},
    {"name", "gpu_name", "", "the device's name",
     [](const QuerySample& sample) -> Value { return sample.device().name(); }},
    {"uuid", "gpu_uuid", "", "", nullptr},
    {"serial", "gpu_serial", "", "", nullptr},
    {"pci.bus_id", "gpu_bus_id", "", "the device's address on PCI, as nvidia-smi writes it: 00000000:17:00.0",
     [](const QuerySample& sample) -> Value {
       // nvidia-smi writes domains with eight digits, and upper case.
       const PciAddress address = PciAddress::Parse(sample.device().pci_address());
       if (!address.is_known()) return std::nullopt;
       return absl::AsciiStrToUpper("0000" + address.Text());
     }},
    {"memory.total", "", "MiB", "size of the device's memory",
     [](const QuerySample& sample) -> Value { return Mebibytes(sample.device().memory_total_bytes()); }},
    {"memory.used", "", "MiB", "held by buffers of all sessions",
     [](const QuerySample& sample) -> Value { return Mebibytes(sample.device().memory_used_bytes()); }},
    {"memory.free", "", "MiB", "memory that no program uses; if that is not measured, total minus used",
     [](const QuerySample& sample) -> Value {
       const v1::Device& device = sample.device();
       if (device.has_memory_free_bytes()) return Mebibytes(device.memory_free_bytes());
       return Mebibytes(device.memory_total_bytes() -
                        std::min(device.memory_total_bytes(), device.memory_used_bytes()));
     }},
    {"memory.reserved", "", "MiB", "", nullptr},
    {"utilization.gpu", "", "%",
     "part of the time since the last sample (first: of 0.2 s) in which commands ran",
     [](const QuerySample& sample) -> Value {
       return absl::StrFormat("%.0f", std::round(sample.rates.busy * 100));
     },
     true},
    {"utilization.memory", "", "%", "", nullptr},
    {"temperature.gpu", "", "", "degrees Celsius",
     [](const QuerySample& sample) -> Value {
       const v1::Device& device = sample.device();
       return Measured(device.has_temperature_celsius(), device.temperature_celsius(), 0);
     }},
    {"temperature.memory", "", "", "", nullptr},
    {"power.draw", "", "W", "mean since the previous sample",
     [](const QuerySample& sample) -> Value {
       return Measured(sample.device().has_power_watts(), sample.device().power_watts(), 2);
     }},
    {"power.limit", "", "W", "", nullptr},
    {"fan.speed", "", "%", "", nullptr},
    {"pstate", "", "", "", nullptr},
    {"clocks.current.graphics", "clocks.gr", "MHz", "same as clocks.sm", CoreClock},
    {"clocks.current.sm", "clocks.sm", "MHz", "frequency of the device's compute units", CoreClock},
    {"clocks.current.memory", "clocks.mem", "MHz", "", nullptr},
    {"pcie.link.gen.current", "", "", "", nullptr},
    {"pcie.link.width.current", "", "", "", nullptr},
    {"ecc.mode.current", "", "", "", nullptr},
    {"mig.mode.current", "", "", "", nullptr},
    {"compute_mode", "", "", "", nullptr},
    {"persistence_mode", "", "", "", nullptr},
    {"xpud.kind", "", "", "cpu or gpu",
     [](const QuerySample& sample) -> Value { return sample.device().kind(); }},
    {"xpud.vendor", "", "", "the driver: cpu, cuda or intel",
     [](const QuerySample& sample) -> Value { return sample.device().vendor(); }},
    {"xpud.compute_units", "", "", "cores or multiprocessors",
     [](const QuerySample& sample) -> Value { return absl::StrCat(sample.device().compute_units()); }},
    {"xpud.pool", "", "MiB", "memory allocated from the device, used or free",
     [](const QuerySample& sample) -> Value { return Mebibytes(sample.device().pool_bytes()); }},
    {"xpud.sessions", "", "", "sessions of the daemon that are open",
     [](const QuerySample& sample) -> Value { return absl::StrCat(sample.status.sessions_size()); }},
    {"xpud.commands", "", "", "commands completed since the daemon started",
     [](const QuerySample& sample) -> Value { return absl::StrCat(sample.device().commands_completed()); }},
    {"xpud.launches", "", "", "kernel launches since the daemon started",
     [](const QuerySample& sample) -> Value { return absl::StrCat(sample.device().launches()); }},
    {"xpud.throttle_reasons", "", "", "reasons that limit the frequency, or none",
     [](const QuerySample& sample) -> Value {
       const v1::Device& device = sample.device();
       if (!device.has_throttle_reasons()) return std::nullopt;
       return device.throttle_reasons().empty() ? "none" : device.throttle_reasons();
     }},
    {"xpud.energy", "", "J", "energy used since some point in the past",
     [](const QuerySample& sample) -> Value {
       const v1::Device& device = sample.device();
       return Measured(device.has_energy_microjoules(),
                       static_cast<double>(device.energy_microjoules()) / 1e6, 1);
     }},
    {"xpud.executor_pid", "", "", "pid of the device's executor process, if it has one",
     [](const QuerySample& sample) -> Value {
       if (!sample.device().has_executor_pid()) return std::nullopt;
       return absl::StrCat(sample.device().executor_pid());
     }},
};

template <typename Cell>
std::string Join(std::span<const QueryField* const> fields, Cell cell) {
  std::string line;
  for (const QueryField* field : fields) absl::StrAppend(&line, line.empty() ? "" : ", ", cell(*field));
  return line + "\n";
}

}  // namespace

std::span<const QueryField> QueryFields() { return kFields; }

absl::StatusOr<std::vector<const QueryField*>> ParseQueryFields(std::string_view list) {
  std::vector<const QueryField*> fields;
  for (const absl::string_view word : absl::StrSplit(absl::string_view(list.data(), list.size()), ',')) {
    const auto* found = std::ranges::find_if(kFields, [&](const QueryField& field) {
      return !word.empty() && (word == field.name || word == field.alias);
    });
    if (found == std::end(kFields)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "Field \"", word, "\" is not a valid field to query; xpuctl query --help-query-gpu lists them"));
    }
    fields.push_back(found);
  }
  return fields;
}

absl::StatusOr<QueryFormat> ParseQueryFormat(std::string_view text) {
  QueryFormat format;
  bool csv = false;
  for (const absl::string_view word : absl::StrSplit(absl::string_view(text.data(), text.size()), ',')) {
    if (word == "csv") {
      csv = true;
    } else if (word == "noheader") {
      format.header = false;
    } else if (word == "nounits") {
      format.units = false;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--format must be csv[,noheader][,nounits], without \"", word, "\""));
    }
  }
  if (!csv) return absl::InvalidArgumentError("--format must name csv");
  return format;
}

std::string QueryHeader(std::span<const QueryField* const> fields) {
  return Join(fields, [](const QueryField& field) {
    return *field.unit ? absl::StrCat(field.name, " [", field.unit, "]") : std::string(field.name);
  });
}

std::string QueryLine(std::span<const QueryField* const> fields, const QuerySample& sample, bool units) {
  return Join(fields, [&](const QueryField& field) -> std::string {
    const Value value = field.value == nullptr ? std::nullopt : field.value(sample);
    if (!value) return "[N/A]";
    return CsvField(units && *field.unit ? absl::StrCat(*value, " ", field.unit) : *value);
  });
}

std::string QueryHelp() {
  std::string text;
  for (const QueryField& field : kFields) {
    const std::string names = *field.alias ? absl::StrCat(field.name, " or ", field.alias) : field.name;
    absl::StrAppendFormat(&text, "%-38s %s\n", names,
                          field.value == nullptr ? "not measured: always [N/A]" : field.summary);
  }
  return text;
}

}  // namespace xpud::xpuctl
