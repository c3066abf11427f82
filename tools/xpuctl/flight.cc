// flight: shows a session's last commands, also after its end.
#include <google/protobuf/util/json_util.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/base/text.h"
#include "sdk/control/client.h"
#include "tools/xpuctl/commands.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/table.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

constexpr uint32_t kShown = 20;

std::string StateOf(const v1::FlightCommand& command, const v1::Flight& flight) {
  if (command.refused()) return "refused";
  if (command.sequence() <= flight.completed()) return "done";
  return flight.has_ended() ? "not known to have ended" : "on the device";
}

std::string FlightText(const v1::Flight& flight, uint64_t now_ns) {
  std::string text =
      absl::StrCat("session ", flight.session(), " (", PrintableText(flight.client_name()), ", pid ",
                   flight.pid(), ", ", flight.tenant(), ") on device ", flight.device(), ": ",
                   flight.recorded(), " commands, completed to ", flight.completed(), "\n");
  if (flight.has_ended())
    absl::StrAppend(&text, "ended ", Duration(now_ns - flight.ended_ns()),
                    " ago: ", PrintableText(flight.ended()), "\n");
  if (flight.has_waiting_for())
    absl::StrAppend(&text, "the next command ", flight.has_ended() ? "waited" : "waits", " for ",
                    PrintableText(flight.waiting_for()), "\n");
  if (flight.has_waiting_ns())
    absl::StrAppend(&text, "nothing has run or ended for ", Duration(flight.waiting_ns()), "\n");
  Table table({">command", ">ago", ">queue", "op", "output", ">copied", ">launches", "state"});
  for (const v1::FlightCommand& command : flight.commands()) {
    table.Add({absl::StrCat(command.sequence()), Duration(now_ns - command.run_ns()),
               absl::StrCat(command.queue()), command.op(), command.output(),
               command.copied_bytes() == 0 ? "" : Bytes(static_cast<double>(command.copied_bytes())),
               command.launches() == 0 ? "" : absl::StrCat(command.launches()), StateOf(command, flight)});
  }
  return text + table.ToString();
}

// Reads a file that the daemon wrote (--flight-dumps).
absl::StatusOr<v1::ReadFlightResponse> ReadDump(const std::string& path, uint32_t commands) {
  errno = 0;
  std::ifstream file(path);
  std::ostringstream contents;
  contents << file.rdbuf();  // an error of reading, as of a folder, is a state of `contents`, no exception
  const std::string text = contents.str();
  if (!file.is_open() || (text.empty() && errno != 0))
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  v1::ReadFlightResponse flight;
  if (!google::protobuf::util::JsonStringToMessage(text, &flight).ok() || flight.flights().empty())
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a dump of xpud's flight recorder"));
  for (v1::Flight& part : *flight.mutable_flights()) {
    const auto kept = static_cast<uint32_t>(part.commands_size());
    if (commands != 0 && commands < kept)
      part.mutable_commands()->DeleteSubrange(0, static_cast<int>(kept - commands));
  }
  return flight;
}

absl::StatusOr<v1::ReadFlightResponse> ReadSession(const std::string& address, uint64_t session,
                                                   uint32_t commands) {
  auto client = control::Client::Connect(address);
  if (!client.ok()) return client.status();
  return client->ReadFlight(session, commands);
}

}  // namespace

int RunFlight(const Invocation& invocation) {
  if (invocation.arguments.empty()) {
    return RefuseUsage(
        "flight",
        "it takes the number of a session, which xpuctl ps and xpuctl events name, or a file of "
        "the daemon's --flight-dumps");
  }
  const std::string& what = invocation.arguments[0];
  uint64_t session = 0;
  uint32_t commands = kShown;
  if (invocation.Has("-n") && !absl::SimpleAtoi(invocation.options.at("-n"), &commands))
    return RefuseUsage("flight", absl::StrCat("-n takes a number, not ", invocation.options.at("-n")));
  const auto flight = absl::SimpleAtoi(what, &session) ? ReadSession(invocation.address, session, commands)
                                                       : ReadDump(what, commands);
  if (!flight.ok()) return Report(flight.status());
  if (invocation.output == Output::kJson) {
    std::fputs(Document(ToJson(*flight)).c_str(), stdout);
    return kOk;
  }
  for (const v1::Flight& part : flight->flights())
    std::fputs(FlightText(part, flight->time_ns()).c_str(), stdout);
  return kOk;
}

}  // namespace xpud::xpuctl
