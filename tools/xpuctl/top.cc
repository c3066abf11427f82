// top: repeatedly shows the rates between two samples.
#include <map>

#include "absl/strings/numbers.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/top_live.h"
#include "tools/xpuctl/top_source.h"
#include "tools/xpuctl/views.h"

namespace xpud::xpuctl {
namespace {

std::string RenderOne(const TopSample& sample, Output output, bool first) {
  if (output == Output::kCsv) return TopCsv(*sample.status, *sample.rates).ToString(first);
  return Document(TopJson(*sample.status, *sample.rates));
}

std::string RenderHosts(const TopSource& source, Output output, bool first) {
  using Answer = HostAnswer<v1::GetStatusResponse>;
  std::map<std::string, TopSample> samples;
  for (const TopSample& sample : source.samples()) samples.emplace(sample.host, sample);
  // A host that has answered for the first time has no rates yet.
  std::vector<Answer> answers;
  for (const Answer& answer : source.answers())
    if (!answer.response.ok() || samples.contains(answer.host)) answers.push_back(answer);
  const auto sample_of = [&](const Answer& answer) { return samples.at(answer.host); };
  if (output == Output::kCsv) {
    return HostsCsv<v1::GetStatusResponse>(answers, first, [&](const Answer& answer) {
      return TopCsv(*sample_of(answer).status, *sample_of(answer).rates);
    });
  }
  return HostsDocument<v1::GetStatusResponse>(answers, [&](const Answer& answer) {
    return TopJson(*sample_of(answer).status, *sample_of(answer).rates);
  });
}

std::string Render(const TopSource& source, const Invocation& invocation, bool first) {
  const Output output = invocation.output;
  if (output == Output::kTable || output == Output::kWide)
    return TopText(source.samples(), output == Output::kWide) + ErrorLines(source.answers());
  return invocation.hosts.empty() ? RenderOne(source.samples()[0], output, first)
                                  : RenderHosts(source, output, first);
}

// Converts top's own options to -w and -n. Returns false if --interval is invalid.
bool Repeat(Invocation& invocation) {
  double seconds = invocation.every.value_or(1);
  if (invocation.Has("--interval") &&
      (!absl::SimpleAtod(invocation.options.at("--interval"), &seconds) || !(seconds >= 0.05)))
    return false;
  invocation.every = seconds;
  if (invocation.Has("--once")) invocation.count = 1;
  return true;
}

}  // namespace

int RunTop(const Invocation& given) {
  Invocation invocation = given;
  if (!Repeat(invocation)) return RefuseUsage("top", "--interval takes seconds (at least 0.05)");
  TopSource source(invocation);
  if (const absl::Status status = source.Sample(); !status.ok()) return Report(status);
  CatchInterrupts();
  if (IsLive(invocation)) return RunLive(invocation, source);
  const int shown = ShowSamples(invocation, [&](bool first) -> absl::StatusOr<std::string> {
    if (first) Pause(*invocation.every);
    RETURN_IF_ERROR(source.Sample());
    return Render(source, invocation, first);
  });
  return shown == kOk && !source.all_answered() ? kNotAllHosts : shown;
}

}  // namespace xpud::xpuctl
