// query: prints fields of each device in nvidia-smi's format, for scripts that parse it.
#include <algorithm>
#include <cstdio>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/query_fields.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/top_source.h"

namespace xpud::xpuctl {
namespace {

constexpr double kFirstWindow = 0.2;  // seconds between the first two samples of a rate

struct Query {
  std::vector<const QueryField*> fields;
  QueryFormat format;
  std::set<uint32_t> devices;  // empty: all
};

absl::Status ReadDevices(const std::string& list, std::set<uint32_t>& devices) {
  for (const absl::string_view word : absl::StrSplit(list, ',')) {
    uint32_t index = 0;
    if (!absl::SimpleAtoi(word, &index))
      return absl::InvalidArgumentError(absl::StrCat("-i takes numbers of devices, not \"", word, "\""));
    devices.insert(index);
  }
  return absl::OkStatus();
}

absl::StatusOr<Query> Read(Invocation& invocation) {
  const auto option = [&](const char* name) -> const std::string& { return invocation.options.at(name); };
  Query query;
  if (!invocation.Has("--query-gpu"))
    return absl::InvalidArgumentError("--query-gpu=FIELD,... is missing; --help-query-gpu lists the fields");
  ASSIGN_OR_RETURN(query.fields, ParseQueryFields(option("--query-gpu")));
  if (invocation.Has("--format")) {
    ASSIGN_OR_RETURN(query.format, ParseQueryFormat(option("--format")));
  }
  if (invocation.Has("-i")) RETURN_IF_ERROR(ReadDevices(option("-i"), query.devices));
  if (invocation.Has("--loop-ms")) {
    uint32_t milliseconds = 0;
    if (!absl::SimpleAtoi(option("--loop-ms"), &milliseconds) || milliseconds < 50)
      return absl::InvalidArgumentError("--loop-ms takes milliseconds, at least 50");
    invocation.every = milliseconds / 1e3;
  }
  return query;
}

absl::StatusOr<std::string> Lines(const Query& query, const TopSample& sample) {
  std::set<uint32_t> missing = query.devices;
  std::string text;
  for (const DeviceRates& row : sample.rates->devices) {
    if (!query.devices.empty() && missing.erase(row.device->index()) == 0) continue;
    text += QueryLine(query.fields, {*sample.status, row}, query.format.units);
  }
  if (missing.empty()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("there is no device ", *missing.begin(), "; there are ", sample.status->devices_size()));
}

// Adds the host at the start of each line.
std::string WithHosts(const std::string& host, const std::string& lines) {
  std::string text;
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty()))
    absl::StrAppend(&text, host, ", ", line, "\n");
  return text;
}

absl::StatusOr<std::string> Sample(TopSource& source, const Invocation& invocation, const Query& query) {
  RETURN_IF_ERROR(source.Sample());
  if (!source.all_answered()) std::fputs(ErrorLines(source.answers()).c_str(), stderr);
  std::string text;
  for (const auto& sample : source.samples()) {
    ASSIGN_OR_RETURN(const std::string lines, Lines(query, sample));
    text += invocation.hosts.empty() ? lines : WithHosts(CsvField(sample.host), lines);
  }
  return text;
}

int Loop(const Invocation& invocation, const Query& query) {
  const bool rate = std::ranges::any_of(query.fields, [](const QueryField* field) { return field->rate; });
  TopSource source(invocation);
  const int shown = ShowSamples(invocation, [&](bool first) -> absl::StatusOr<std::string> {
    if (first) RETURN_IF_ERROR(source.Sample());
    if (first && rate) Pause(kFirstWindow);
    ASSIGN_OR_RETURN(std::string lines, Sample(source, invocation, query));
    const std::string header = QueryHeader(query.fields);
    if (!first || !query.format.header) return lines;
    return (invocation.hosts.empty() ? header : WithHosts("host", header)) + lines;
  });
  return shown == kOk && !source.all_answered() ? kNotAllHosts : shown;
}

}  // namespace

int RunQuery(const Invocation& given) {
  if (given.Has("--help-query-gpu")) {
    std::fputs(QueryHelp().c_str(), stdout);
    return kOk;
  }
  Invocation invocation = given;
  invocation.output = Output::kCsv;
  const auto query = Read(invocation);
  if (!query.ok()) return RefuseUsage("query", std::string(query.status().message()));
  return Loop(invocation, *query);
}

}  // namespace xpud::xpuctl
