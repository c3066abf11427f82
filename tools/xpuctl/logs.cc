// logs: prints the latest lines of the daemon's log; with -f also new ones.
#include <cstdio>
#include <deque>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/event_view.h"
#include "tools/xpuctl/samples.h"

namespace xpud::xpuctl {
namespace {

// Returns the latest `most` lines that the daemon has. `last` is the number to continue from.
absl::StatusOr<std::deque<v1::LogLine>> There(control::Client& client, const std::string& level,
                                              uint64_t most, uint64_t& last) {
  std::deque<v1::LogLine> lines;
  while (!Interrupted()) {
    ASSIGN_OR_RETURN(const v1::ListLogResponse list, client.ListLog(last, false, level));
    if (list.last() <= last) break;
    last = list.last();
    for (const v1::LogLine& line : list.lines()) {
      lines.push_back(line);
      if (lines.size() > most) lines.pop_front();
    }
  }
  return lines;
}

// Returns false if the reader of stdout is gone.
bool Print(const v1::LogLine& line, Output output) {
  std::fputs((output == Output::kTable ? LogText(line) : Document(ToJson(line))).c_str(), stdout);
  return std::fflush(stdout) == 0;
}

void PrintDocument(const std::deque<v1::LogLine>& lines) {
  std::string rows;
  for (const v1::LogLine& line : lines) absl::StrAppend(&rows, rows.empty() ? "" : ",", ToJson(line));
  std::fputs(Document(absl::StrCat("{\"lines\":[", rows, "]}")).c_str(), stdout);
}

absl::Status Show(control::Client& client, const Invocation& invocation, const std::string& level,
                  uint64_t most) {
  const bool follow = invocation.Has("-f") || invocation.Has("-w");
  uint64_t last = 0;
  ASSIGN_OR_RETURN(const auto there, There(client, level, most, last));
  if (invocation.output == Output::kJson && !follow) {
    PrintDocument(there);
    return absl::OkStatus();
  }
  for (const v1::LogLine& line : there)
    if (!Print(line, invocation.output)) return absl::OkStatus();
  while (follow && !Interrupted()) {
    ASSIGN_OR_RETURN(const v1::ListLogResponse list, client.ListLog(last, true, level));
    last = list.last();
    for (const v1::LogLine& line : list.lines())
      if (!Print(line, invocation.output)) return absl::OkStatus();
  }
  return absl::OkStatus();
}

}  // namespace

int RunLogs(const Invocation& invocation) {
  const auto option = [&](const char* name) {
    return invocation.Has(name) ? invocation.options.at(name) : std::string();
  };
  uint64_t most = UINT64_MAX;
  if (invocation.Has("-n") && !absl::SimpleAtoi(option("-n"), &most))
    return RefuseUsage("logs", absl::StrCat("-n takes a number of lines, not ", option("-n")));
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  CatchInterrupts();
  const absl::Status status = Show(*client, invocation, option("--level"), most);
  return status.ok() ? kOk : Report(status);
}

}  // namespace xpud::xpuctl
