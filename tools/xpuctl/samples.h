// Shows a view once, or repeatedly with -w. On a terminal the view is redrawn in place; otherwise samples
// follow each other. Ends on Ctrl-C or after -n samples. Not thread-safe.
#pragma once

#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/command.h"
#include "tools/xpuctl/csv.h"
#include "tools/xpuctl/hosts.h"
#include "tools/xpuctl/json.h"

namespace xpud::xpuctl {

// `sample` returns the text of one sample; its argument is true for the first. Returns xpuctl's exit status.
int ShowSamples(const Invocation& invocation,
                absl::FunctionRef<absl::StatusOr<std::string>(bool first)> sample);

// From now on Ctrl-C, SIGTERM, SIGHUP and SIGQUIT end Pause and the loops around it, instead of the process.
void CatchInterrupts();
bool Interrupted();
// Sleeps, unless interrupted by Ctrl-C.
void Pause(double seconds);

// A reply of the daemon and the functions that format it.
template <typename Response>
struct View {
  std::string (*text)(const Response& response, bool wide);
  Csv (*csv)(const Response& response);
  std::string (*hosts)(const HostList<Response>& answers, bool wide) = nullptr;  // for several hosts
};

template <typename Response>
std::string RenderHosts(const View<Response>& view, const std::vector<HostAnswer<Response>>& answers,
                        Output output, bool first) {
  switch (output) {
    case Output::kTable:
    case Output::kWide:
      return view.hosts(Answered(answers), output == Output::kWide) + ErrorLines(answers);
    case Output::kJson:
    case Output::kJsonLines:
      return HostsDocument<Response>(answers, [](const auto& answer) { return ToJson(*answer.response); });
    case Output::kCsv:
      return HostsCsv<Response>(answers, first,
                                [&](const auto& answer) { return view.csv(*answer.response); });
  }
}

template <typename Response>
std::string Render(const View<Response>& view, const Response& response, Output output, bool first) {
  switch (output) {
    case Output::kTable:
    case Output::kWide:
      return view.text(response, output == Output::kWide);
    case Output::kJson:
    case Output::kJsonLines:
      return Document(ToJson(response));
    case Output::kCsv:
      return view.csv(response).ToString(first);
  }
}

// Continues if some hosts do not answer, and then returns kNotAllHosts.
template <typename Response>
int ShowHosts(const Invocation& invocation, const Question<Response>& ask, const View<Response>& view) {
  const Hosts hosts(invocation.hosts);
  bool all = true;
  const int shown = ShowSamples(invocation, [&](bool first) -> absl::StatusOr<std::string> {
    const auto answers = hosts.Ask(ask);
    all = Answered(answers).size() == answers.size();
    return RenderHosts(view, answers, invocation.output, first);
  });
  return shown == kOk && !all ? kNotAllHosts : shown;
}

template <typename Response>
int ShowView(const Invocation& invocation, const std::type_identity_t<Question<Response>>& ask,
             const View<Response>& view) {
  if (!invocation.hosts.empty()) return ShowHosts(invocation, ask, view);
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  return ShowSamples(invocation, [&](bool first) -> absl::StatusOr<std::string> {
    const absl::StatusOr<Response> response = ask(*client);
    if (!response.ok()) return response.status();
    return Render(view, *response, invocation.output, first);
  });
}

}  // namespace xpud::xpuctl
