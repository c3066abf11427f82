#include "tools/xpuctl/top_screen.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/base/text.h"
#include "tools/xpuctl/units.h"

namespace xpud::xpuctl {
namespace {

struct Sort {
  char key;
  const char* name;
  double (*value)(const SessionRates& row);
};
constexpr Sort kSorts[] = {
    {'d', "device time", [](const SessionRates& row) { return row.busy; }},
    {'w', "wait", [](const SessionRates& row) { return row.waiting; }},
    {'m', "memory", [](const SessionRates& row) { return static_cast<double>(row.session->memory_bytes()); }},
    {'c', "commands", [](const SessionRates& row) { return row.commands; }},
    {'a', "age", [](const SessionRates& row) { return static_cast<double>(row.session->age_ns()); }},
};

constexpr const char* kHelp[] = {
    "d w m c a   sort by device time, wait, memory, commands, age; s: next of these",
    "up, down    select a session",
    "k           kill the selected session, after you confirm with y",
    "p, space    pause or continue",
    "v           more or fewer columns",
    "h, ?        show or hide this help",
    "q, Ctrl-C   quit",
};
constexpr char kHint[] = "h help  q quit  k kill  p pause  s sort";

// Truncates printable text to `columns` characters.
std::string Cut(std::string_view text, size_t columns) {
  std::string out;
  for (size_t i = 0; i < columns && !text.empty(); ++i) {
    const Character first = FirstCharacter(text);
    out += first.bytes;
    text.remove_prefix(first.bytes.size());
  }
  return out;
}

void AddLines(const std::string& text, size_t columns, std::vector<std::string>& lines) {
  std::vector<std::string> parts = absl::StrSplit(text, '\n');
  if (!parts.empty() && parts.back().empty()) parts.pop_back();
  for (const std::string& part : parts) lines.push_back(Cut(part, columns));
}

}  // namespace

void TopScreen::Update(std::vector<TopSample> samples, std::string errors) {
  samples_ = std::move(samples);
  errors_ = std::move(errors);
  Sort();
}

void TopScreen::Sort() {
  sessions_ = BusiestFirst(samples_);
  const auto value = kSorts[sort_].value;
  std::sort(sessions_.begin(), sessions_.end(), [&](const TopRow& a, const TopRow& b) {
    const double of_a = value(*a.rates), of_b = value(*b.rates);
    return of_a != of_b ? of_a > of_b : IdOf(a) < IdOf(b);
  });
}

// Returns the first row, unless the user has chosen one that still exists.
size_t TopScreen::SelectedIndex() const {
  const auto found = std::ranges::find_if(sessions_, [&](const TopRow& row) { return chosen_ == IdOf(row); });
  return found == sessions_.end() ? 0 : static_cast<size_t>(found - sessions_.begin());
}

std::optional<TopRow> TopScreen::selected() const {
  if (sessions_.empty()) return std::nullopt;
  return sessions_[SelectedIndex()];
}

void TopScreen::Move(int by) {
  if (sessions_.empty()) return;
  const auto last = static_cast<ptrdiff_t>(sessions_.size()) - 1;
  const auto to = std::clamp<ptrdiff_t>(static_cast<ptrdiff_t>(SelectedIndex()) + by, 0, last);
  chosen_ = IdOf(sessions_[static_cast<size_t>(to)]);
}

bool TopScreen::Confirm(const Key& key) {
  asking_ = false;
  const bool yes = key.kind == Key::kCharacter && key.character == 'y';
  // Applies to the session that the question was about, even if another one is selected now.
  if (yes && selected() && chosen_ == IdOf(*selected())) return true;
  Say(yes ? "that session has ended already" : "nothing was killed");
  return false;
}

TopScreen::Action TopScreen::Press(const Key& key) {
  message_.clear();
  const bool character = key.kind == Key::kCharacter;
  if (character && key.character == kControlC) return Action::kQuit;
  if (asking_) return Confirm(key) ? Action::kKill : Action::kNone;
  if (key.kind == Key::kUp) Move(-1);
  if (key.kind == Key::kDown) Move(1);
  if (key.kind == Key::kEscape) help_ = false;
  if (!character) return Action::kNone;
  switch (key.character) {
    case 'q':
      return Action::kQuit;
    case 'h':
    case '?':
      help_ = !help_;
      break;
    case 'p':
    case ' ':
      paused_ = !paused_;
      break;
    case 'v':
      wide_ = !wide_;
      break;
    case 's':
      sort_ = (sort_ + 1) % std::size(kSorts);
      break;
    case 'k':
      Move(0);  // keeps the session of the question selected
      asking_ = !sessions_.empty();
      if (!asking_) Say("there is no session to kill");
      break;
    default:
      for (size_t i = 0; i < std::size(kSorts); ++i) {
        if (key.character == kSorts[i].key) sort_ = i;
      }
  }
  Sort();
  return Action::kNone;
}

std::string TopScreen::Prompt() const {
  if (asking_ && selected()) {
    const TopRow row = *selected();
    const v1::Session& session = *row.rates->session;
    return absl::StrCat("close session ", session.id(), " of ", PrintableText(TenantName(session)), " (",
                        PrintableText(session.client_name()), ", pid ", session.pid(), ")",
                        row.host.empty() ? "" : " on " + PrintableText(row.host), "? y or n");
  }
  if (!message_.empty()) return PrintableText(message_);
  return absl::StrCat(kHint, "   sorted by ", kSorts[sort_].name, paused_ ? "   PAUSED" : "");
}

// Returns the heading and at most `most` rows, including the selected one.
std::vector<std::string> TopScreen::SessionLines(size_t most, size_t columns) const {
  constexpr char kSelected[] = "\x1b[7m", kPlain[] = "\x1b[0m";
  std::vector<std::string> lines;
  AddLines(TopSessions(samples_, sessions_, wide_).ToString(), columns, lines);
  const size_t room = most == 0 ? 0 : most - 1, chosen = SelectedIndex();
  const size_t first = chosen < room ? 0 : chosen + 1 - room;
  if (!sessions_.empty()) lines[chosen + 1] = kSelected + lines[chosen + 1] + kPlain;
  lines.erase(lines.begin() + 1,
              lines.begin() + 1 + static_cast<ptrdiff_t>(std::min(first, sessions_.size())));
  if (lines.size() > most) lines.resize(most);
  return lines;
}

std::vector<std::string> TopScreen::Draw(size_t rows, size_t columns) const {
  std::vector<std::string> lines;
  AddLines(TopHead(samples_, wide_) + errors_, columns, lines);
  lines.emplace_back();
  if (help_) {
    for (const char* const line : kHelp) lines.push_back(Cut(line, columns));
  } else if (lines.size() + 1 < rows) {
    for (std::string& line : SessionLines(rows - 1 - lines.size(), columns)) lines.push_back(std::move(line));
  }
  if (lines.size() + 1 > rows) lines.resize(rows == 0 ? 0 : rows - 1);
  while (lines.size() + 1 < rows) lines.emplace_back();
  lines.push_back(Cut(Prompt(), columns));
  return lines;
}

}  // namespace xpud::xpuctl
