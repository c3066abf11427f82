// profile: records what sessions do, saves it as a trace, or sums it up.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/profile_data.h"
#include "tools/xpuctl/profile_stats.h"
#include "tools/xpuctl/profile_trace.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

constexpr char kVerbs[] = "it takes start, stop, list, save or stats";

// What an invocation selects: a session, --tenant or --all.
struct Wanted {
  v1::ProfileSelection selection;

  bool Has(const v1::ProfileInfo& info) const {
    if (selection.of_case() == v1::ProfileSelection::kSession) return info.session() == selection.session();
    if (selection.of_case() == v1::ProfileSelection::kTenant) return info.tenant() == selection.tenant();
    return true;
  }
};

// Returns an error text, or "". `words`: those after the verb that name the session.
std::string ReadWanted(const Invocation& invocation, std::span<const std::string> words, Wanted& wanted) {
  const bool all = invocation.Has("--all"), tenant = invocation.Has("--tenant");
  if (all + tenant + static_cast<int>(words.size()) != 1)
    return "it takes one session, --tenant TENANT or --all; xpuctl ps lists them";
  if (tenant) wanted.selection.set_tenant(invocation.options.at("--tenant"));
  if (words.empty()) return "";
  uint64_t session = 0;
  if (!absl::SimpleAtoi(words[0], &session)) return absl::StrCat("no session has the number ", words[0]);
  wanted.selection.set_session(session);
  return "";
}

absl::StatusOr<ProfileData> Read(control::Client& client, const Wanted& wanted) {
  ProfileData data;
  ASSIGN_OR_RETURN(const v1::ListDevicesResponse devices, client.ListDevices());
  data.devices.assign(devices.devices().begin(), devices.devices().end());
  ASSIGN_OR_RETURN(const v1::ListProfilesResponse list, client.ListProfiles());
  data.time_ns = list.time_ns();
  data.unix_ns = list.unix_ns();
  for (const v1::ProfileInfo& info : list.profiles()) {
    if (!wanted.Has(info)) continue;
    ProfiledSession& session = data.sessions.emplace_back();
    session.info = info;
    // Not more than there are now: a session that works may add commands as fast as they are read.
    const uint64_t end = info.overwritten() + info.commands();
    for (uint64_t next = 0; next < end;) {
      ASSIGN_OR_RETURN(v1::ReadProfileResponse part, client.ReadProfile(info.session(), info.device(), next));
      if (part.commands().empty()) break;
      next = part.next();
      for (v1::ProfiledCommand& command : *part.mutable_commands())
        session.commands.push_back(std::move(command));
    }
  }
  if (data.sessions.empty())
    return absl::InvalidArgumentError("none of these sessions was profiled; xpuctl profile start begins to");
  return data;
}

// Adds how the memory of the sessions' devices and tenants changed.
absl::Status ReadMemory(control::Client& client, ProfileData& data) {
  std::map<uint32_t, std::set<std::string>> tenants;  // by device
  for (const ProfiledSession& session : data.sessions)
    tenants[session.info.device()].insert(session.info.tenant());
  for (auto& [device, wanted] : tenants) {
    wanted.insert("");  // the device itself
    DeviceHistory history{device, {}};
    for (uint64_t next = 0, until = 0; until <= data.time_ns;) {
      absl::StatusOr<v1::ReadMemoryHistoryResponse> part = client.ReadMemoryHistory(device, next);
      if (absl::IsUnimplemented(part.status())) return absl::OkStatus();
      RETURN_IF_ERROR(part.status());
      if (part->samples().empty()) break;
      next = part->next();
      until = part->samples().rbegin()->time_ns();
      for (v1::MemorySample& sample : *part->mutable_samples())
        if (wanted.contains(sample.tenant())) history.samples.push_back(std::move(sample));
    }
    if (!history.samples.empty()) data.memory.push_back(std::move(history));
  }
  return absl::OkStatus();
}

int Start(const Invocation& invocation, control::Client& client, const Wanted& wanted) {
  v1::StartProfileRequest request;
  *request.mutable_selection() = wanted.selection;
  if (invocation.Has("--seconds")) {
    double seconds = 0;
    const std::string& text = invocation.options.at("--seconds");
    if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0 && seconds <= 1e6))
      return RefuseUsage("profile", absl::StrCat("--seconds takes a number up to 10^6, not ", text));
    request.set_duration_ms(static_cast<uint64_t>(seconds * 1000));
  }
  if (invocation.Has("--commands")) {
    uint64_t commands = 0;
    const std::string& text = invocation.options.at("--commands");
    if (!absl::SimpleAtoi(text, &commands) || commands == 0)
      return RefuseUsage("profile", absl::StrCat("--commands takes a number, not ", text));
    request.set_commands(commands);
  }
  const auto started = client.StartProfile(request);
  if (!started.ok()) return Report(started.status());
  std::printf("profiling %u %s%s\n", started->sessions(), started->sessions() == 1 ? "session" : "sessions",
              wanted.selection.of_case() == v1::ProfileSelection::kSession ? "" : ", and those to come");
  return kOk;
}

int Stop(control::Client& client, const Wanted& wanted) {
  const auto stopped = client.StopProfile(wanted.selection);
  if (!stopped.ok()) return Report(stopped.status());
  std::printf("stopped profiling %u %s\n", stopped->sessions(),
              stopped->sessions() == 1 ? "session" : "sessions");
  return kOk;
}

int List(const Invocation& invocation, control::Client& client) {
  const auto list = client.ListProfiles();
  if (!list.ok()) return Report(list.status());
  if (invocation.Has("-o") && invocation.options.at("-o") == "json") {
    std::fputs(Document(ToJson(*list)).c_str(), stdout);
    return kOk;
  }
  Table table({">session", ">device", "client", "tenant", ">commands", ">overwritten", "state"});
  for (const v1::ProfileInfo& info : list->profiles()) {
    table.Add({absl::StrCat(info.session()), absl::StrCat(info.device()), info.client_name(), info.tenant(),
               absl::StrCat(info.commands()), absl::StrCat(info.overwritten()),
               info.ended()     ? "session ended"
               : info.running() ? "running"
                                : "stopped"});
  }
  std::fputs(table.ToString().c_str(), stdout);
  return kOk;
}

std::string DataJson(const ProfileData& data) {
  std::string sessions;
  for (const ProfiledSession& session : data.sessions) {
    std::string commands;
    for (const v1::ProfiledCommand& command : session.commands)
      absl::StrAppend(&commands, commands.empty() ? "" : ",", ToJson(command));
    absl::StrAppend(&sessions, sessions.empty() ? "" : ",", "{\"info\":", ToJson(session.info),
                    ",\"commands\":[", commands, "]}");
  }
  std::string memory;
  for (const DeviceHistory& history : data.memory) {
    std::string samples;
    for (const v1::MemorySample& sample : history.samples)
      absl::StrAppend(&samples, samples.empty() ? "" : ",", ToJson(sample));
    absl::StrAppend(&memory, memory.empty() ? "" : ",", "{\"device\":", history.device, ",\"samples\":[",
                    samples, "]}");
  }
  return Document(absl::StrCat("{\"time_ns\":", data.time_ns, ",\"unix_ns\":", data.unix_ns,
                               ",\"sessions\":[", sessions, "],\"memory\":[", memory, "]}"));
}

int Save(const std::string& format, const std::string& file, const ProfileData& data) {
  std::string text;
  if (format == "perfetto") {
    text = PerfettoTrace(data);
  } else if (format == "chrome") {
    text = ChromeTrace(data);
  } else if (format == "json") {
    text = DataJson(data);
  } else {
    return RefuseUsage("profile", absl::StrCat("save -o takes perfetto, chrome or json, not ", format));
  }
  if (file == "-") return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? kOk : kError;
  errno = 0;
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out)
    return Report(absl::InternalError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno))));
  size_t commands = 0;
  for (const ProfiledSession& session : data.sessions) commands += session.commands.size();
  std::printf("%s: %zu commands, %s\n", PrintableText(file).c_str(), commands,
              Bytes(static_cast<double>(text.size())).c_str());
  return kOk;
}

int Stats(const std::string& format, const ProfileData& data) {
  const ProfileStats stats = StatsOf(data);
  if (format != "table" && format != "json")
    return RefuseUsage("profile", absl::StrCat("stats -o takes table or json, not ", format));
  std::fputs((format == "json" ? Document(StatsJson(stats)) : StatsText(stats)).c_str(), stdout);
  return kOk;
}

}  // namespace

int RunProfile(const Invocation& invocation) {
  std::span<const std::string> words = invocation.arguments;
  if (words.empty()) return RefuseUsage("profile", kVerbs);
  const std::string verb = words[0];
  words = words.subspan(1);
  if (!std::set<std::string>{"start", "stop", "list", "save", "stats"}.contains(verb))
    return RefuseUsage("profile", absl::StrCat(kVerbs, ", not ", verb));
  std::string file;
  if (verb == "save") {
    if (words.empty()) return RefuseUsage("profile", "save takes a file, or - for the standard output");
    file = words.back();
    words = words.first(words.size() - 1);
  }
  Wanted wanted;
  if (verb != "list") {
    if (const std::string trouble = ReadWanted(invocation, words, wanted); !trouble.empty())
      return RefuseUsage("profile", trouble);
  }
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  if (verb == "start") return Start(invocation, *client, wanted);
  if (verb == "stop") return Stop(*client, wanted);
  if (verb == "list") return List(invocation, *client);
  auto data = Read(*client, wanted);
  if (!data.ok()) return Report(data.status());
  const bool named = invocation.Has("-o");
  if (verb == "save") {
    if (const absl::Status read = ReadMemory(*client, *data); !read.ok()) return Report(read);
    return Save(named ? invocation.options.at("-o") : "perfetto", file, *data);
  }
  return Stats(named ? invocation.options.at("-o") : "table", *data);
}

}  // namespace xpud::xpuctl
