#include "deploy/agent/metrics.h"

#include "absl/strings/str_cat.h"

namespace xpud::agent {

using telemetry::LabelsText;

MetricsSnapshot TakeSnapshot(const std::vector<std::string>& engines, ClaimKeeper& keeper,
                             const Counters& counters, const Conditions& conditions) {
  MetricsSnapshot snapshot{.counters = counters.Read(), .claims = {}, .conditions = conditions.All()};
  const auto claims = keeper.List("");
  if (!claims.ok()) return snapshot;
  for (const std::string& engine : engines) snapshot.claims[engine] = 0;
  for (const v1::Claim& claim : *claims) ++snapshot.claims[claim.labels().at(kEngineLabel)];
  return snapshot;
}

std::string MetricsText(const MetricsSnapshot& snapshot, telemetry::Format format) {
  using enum telemetry::Type;
  telemetry::Exposition out(format);
  out.Begin({"xpud_agent_build_info", kGauge, telemetry::Scale::kOne,
             "Always 1; the label is the agent's version."});
  out.Add(LabelsText({{"version", XPUD_VERSION}}), 1);
  out.Begin({"xpud_agent_condition_met", kGauge, telemetry::Scale::kOne,
             "Whether what the agent needs is there; /readyz says what is missing and why."});
  for (const auto& [name, reason] : snapshot.conditions)
    out.Add(LabelsText({{"condition", name}}), reason.empty());
  out.Begin(
      {"xpud_agent_claims", kGauge, telemetry::Scale::kOne, "Claims that the agent has made, by engine."});
  for (const auto& [engine, count] : snapshot.claims) out.Add(LabelsText({{"engine", engine}}), count);
  out.Begin(
      {"xpud_agent_call_seconds", kHistogram, telemetry::Scale::kNanoseconds,
       "How long calls of engines took: prepare and unprepare, grant, renew and return, begin and end."});
  for (const auto& [key, times] : snapshot.counters.calls)
    out.AddHistogram({{"engine", key.first}, {"action", key.second}}, times.counts(), times.sum_ns());
  out.Begin({"xpud_agent_refusals_total", kCounter, telemetry::Scale::kOne,
             "Calls of engines that ended with an error, by its status code."});
  for (const auto& [key, count] : snapshot.counters.refusals)
    out.Add(LabelsText({{"engine", key.first}, {"code", key.second}}), count);
  out.Begin({"xpud_agent_corrections_total", kCounter, telemetry::Scale::kOne,
             "Claims and files that were not as the engine wants them, and were set right."});
  for (const auto& [key, count] : snapshot.counters.corrections)
    out.Add(LabelsText({{"engine", key.first}, {"what", key.second}}), count);
  out.Begin({"xpud_agent_api_requests_total", kCounter, telemetry::Scale::kOne,
             "Requests to an engine's server, by status of HTTP; 0: no answer."});
  for (const auto& [key, count] : snapshot.counters.requests)
    out.Add(LabelsText({{"engine", key.first}, {"code", absl::StrCat(key.second)}}), count);
  return std::move(out).Finish();
}

telemetry::Connection::Pages HealthPages(const Conditions& conditions) {
  return {{"/healthz", [] { return telemetry::Connection::Page{true, "ok\n"}; }},
          {"/readyz", [&conditions] {
             std::string text;
             for (const auto& [name, reason] : conditions.Failing())
               absl::StrAppend(&text, name, ": ", reason, "\n");
             const bool is_ready = text.empty();
             return telemetry::Connection::Page{is_ready, is_ready ? "ok\n" : std::move(text)};
           }}};
}

}  // namespace xpud::agent
