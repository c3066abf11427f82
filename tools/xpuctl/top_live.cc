#include "tools/xpuctl/top_live.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "tools/xpuctl/samples.h"
#include "tools/xpuctl/terminal.h"
#include "tools/xpuctl/top_screen.h"

namespace xpud::xpuctl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kFirst = 0.2;     // seconds until the first rates
constexpr double kMaxWait = 0.25;  // longest delay until a signal is noticed

double SecondsUntil(Clock::time_point time) {
  return std::chrono::duration<double>(time - Clock::now()).count();
}

Clock::time_point In(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::string Kill(const TopSource& source, const TopRow& row) {
  auto client = control::Client::Connect(source.AddressOf(row.host));
  if (!client.ok()) return std::string(client.status().message());
  const auto closed = client->CloseSession(row.rates->session->id());
  return closed.ok() ? absl::StrCat("session ", closed->id(), " closed")
                     : std::string(closed.status().message());
}

absl::Status Loop(const Invocation& invocation, TopSource& source, Terminal& terminal) {
  TopScreen screen(invocation.output == Output::kWide);
  Clock::time_point next = In(std::min(kFirst, *invocation.every));
  while (!Interrupted()) {
    if (!terminal.Show(screen.Draw(terminal.rows(), terminal.columns()))) return absl::OkStatus();
    const double wait = screen.paused() ? kMaxWait : std::min(SecondsUntil(next), kMaxWait);
    if (const auto key = terminal.Read(wait)) {
      const TopScreen::Action action = screen.Press(*key);
      if (action == TopScreen::Action::kQuit) return absl::OkStatus();
      if (action == TopScreen::Action::kKill) screen.Say(Kill(source, *screen.selected()));
    }
    if (screen.paused() || SecondsUntil(next) > 0) continue;
    next = In(*invocation.every);
    RETURN_IF_ERROR(source.Sample());
    screen.Update(source.samples(), ErrorLines(source.answers()));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsLive(const Invocation& invocation) {
  const bool text = invocation.output == Output::kTable || invocation.output == Output::kWide;
  return text && invocation.count < 0 && Terminal::IsThere();
}

int RunLive(const Invocation& invocation, TopSource& source) {
  absl::Status status;
  {
    auto terminal = Terminal::Take();
    if (!terminal.ok()) return Report(terminal.status());
    status = Loop(invocation, source, **terminal);
  }
  if (!status.ok()) return Report(status);
  return source.all_answered() ? kOk : kNotAllHosts;
}

}  // namespace xpud::xpuctl
