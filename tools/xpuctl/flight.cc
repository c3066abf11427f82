// flight: shows a session's last commands, also after its end.
#include <cstdio>
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

}  // namespace

int RunFlight(const Invocation& invocation) {
  uint64_t session = 0;
  if (invocation.arguments.empty() || !absl::SimpleAtoi(invocation.arguments[0], &session))
    return RefuseUsage("flight", "it takes the number of a session; xpuctl ps and xpuctl events name them");
  uint32_t commands = kShown;
  if (invocation.Has("-n") && !absl::SimpleAtoi(invocation.options.at("-n"), &commands))
    return RefuseUsage("flight", absl::StrCat("-n takes a number, not ", invocation.options.at("-n")));
  auto client = control::Client::Connect(invocation.address);
  if (!client.ok()) return Report(client.status());
  const auto flight = client->ReadFlight(session, commands);
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
