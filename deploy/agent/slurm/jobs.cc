#include "deploy/agent/slurm/jobs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/slurm/command.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::slurm {
namespace {

// The states in which a job has its nodes, and may use its claim or will.
constexpr std::array<std::string_view, 4> kRuns = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING"};
constexpr std::array<std::string_view, 4> kBeginsOrEnds = {"CONFIGURING", "COMPLETING", "RESIZING",
                                                           "STAGE_OUT"};

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Returns false, unless all of the text is a number that fits.
template <typename Number>
bool ReadNumber(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Removes a word from the front of `text`, which must begin with it. Returns whether it does.
bool Skip(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word)) return false;
  text.remove_prefix(word.size());
  return true;
}

// Removes what is before the next space.
std::string_view Word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

// A part of a record: "Nodes=a[1-2] CPU_IDs=0-3 Mem=0 GRES=xpud:25".
struct Part {
  std::string_view nodes, gres;
};
std::optional<Part> ReadPart(std::string_view text) {
  Part part;
  if (!Skip(text, "Nodes=")) return std::nullopt;
  part.nodes = Word(text);
  if (!Skip(text, " CPU_IDs=")) return std::nullopt;
  Word(text);
  if (!Skip(text, " Mem=")) return std::nullopt;
  Word(text);
  if (!Skip(text, " GRES=")) return std::nullopt;
  part.gres = Word(text);
  return part;
}

std::vector<Part> PartsOn(std::string_view record, std::string_view node) {
  std::vector<Part> parts;
  for (size_t at = record.find("Nodes="); at != std::string_view::npos; at = record.find("Nodes=", at + 1)) {
    const std::optional<Part> part = ReadPart(record.substr(at));
    if (part && HostListHas(part->nodes, node)) parts.push_back(*part);
  }
  return parts;
}

// The counts of xpud in a list such as "gpu:1(IDX:0),xpud:25" or "xpud(CNT:25)".
absl::StatusOr<uint32_t> ShareOf(std::string_view gres) {
  uint32_t share = 0;
  std::string_view rest = gres;
  while (!rest.empty()) {
    // A comma in parentheses separates no entries.
    size_t end = 0;
    for (int depth = 0; end < rest.size() && (depth > 0 || rest[end] != ','); ++end)
      depth += rest[end] == '(' ? 1 : rest[end] == ')' ? -1 : 0;
    std::string_view entry = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    Skip(entry, "gres/");
    Skip(entry, "gres:");
    const size_t name_end = entry.find_first_of(":(");
    if (entry.substr(0, name_end) != "xpud") continue;
    std::string_view count = name_end == std::string_view::npos ? "" : entry.substr(name_end);
    if (Skip(count, "(CNT:")) {
      count = count.substr(0, count.find(')'));
    } else {
      count = count.substr(0, count.find('('));
      count = count.substr(count.rfind(':') == std::string_view::npos ? 0 : count.rfind(':') + 1);
    }
    uint32_t number = 0;
    if (!ReadNumber(count, number) || number < 1 || number > kMaxShare - share) {
      return absl::FailedPreconditionError(
          absl::StrCat("the controller has allocated \"", std::string(gres), "\", and a share is from 1 to ",
                       kMaxShare, "; slurm.conf must say Gres=xpud:", kMaxShare, " for the node"));
    }
    share += number;
  }
  return share;
}

// "17_3", if the record begins "JobId=19 ArrayJobId=17 ArrayTaskId=3 ".
std::string ArrayOf(std::string_view record) {
  Word(record);
  if (!Skip(record, " ArrayJobId=")) return "";
  const std::string_view array = Word(record);
  return Skip(record, " ArrayTaskId=") ? std::string(array) + "_" + std::string(Word(record)) : "";
}

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// A part of what is in brackets: "8" or "01-03". Numbers with leading zeros have a fixed width: "08" is
// written with the width of the first number, and "10" may be longer than "8".
struct NumberRange {
  uint64_t first = 0, last = 0;
  size_t width = 0;

  bool Has(std::string_view digits) const {
    uint64_t number = 0;
    return ReadNumber(digits, number) && number >= first && number <= last &&
           digits.size() == std::max(width, absl::StrCat(number).size());
  }
};

std::vector<NumberRange> ReadRanges(std::string_view text) {
  std::vector<NumberRange> ranges;
  for (const std::string_view part : Split(text, ',')) {
    const std::vector<std::string_view> ends = Split(part, '-');
    NumberRange range{.width = ends.front().size()};
    if (ends.size() <= 2 && ReadNumber(ends.front(), range.first) && ReadNumber(ends.back(), range.last))
      ranges.push_back(range);
  }
  return ranges;
}

// Which beginnings of a host's name a part of a list's name can be, by their lengths.
using Lengths = std::vector<bool>;

Lengths AfterText(const Lengths& before, std::string_view text, std::string_view host) {
  Lengths after(before.size());
  for (size_t at = 0; at + text.size() < before.size(); ++at)
    if (before[at] && host.substr(at).starts_with(text)) after[at + text.size()] = true;
  return after;
}

Lengths AfterRanges(const Lengths& before, std::string_view text, std::string_view host) {
  const std::vector<NumberRange> ranges = ReadRanges(text);
  Lengths after(before.size());
  for (size_t at = 0; at < host.size(); ++at) {
    for (size_t end = at; before[at] && end < host.size() && IsDigit(host[end]); ++end) {
      const std::string_view digits = host.substr(at, end + 1 - at);
      if (std::ranges::any_of(ranges, [&](const NumberRange& range) { return range.Has(digits); }))
        after[end + 1] = true;
    }
  }
  return after;
}

// Whether one name of a list, with any brackets, is the host's. Jobs' names are users' words and can look
// like lists, so it must not take long.
bool NameIs(std::string_view name, std::string_view host) {
  Lengths reached(host.size() + 1);
  reached[0] = true;
  for (;;) {
    const size_t open = std::min(name.find('['), name.size());
    reached = AfterText(reached, name.substr(0, open), host);
    if (open == name.size()) return reached[host.size()];
    const size_t close = name.find(']', open);
    if (close == std::string_view::npos) return false;
    reached = AfterRanges(reached, name.substr(open + 1, close - open - 1), host);
    name.remove_prefix(close + 1);
  }
}

}  // namespace

bool HostListHas(std::string_view list, std::string_view host) {
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && (list[i] == '[' || list[i] == ']')) depth += list[i] == '[' ? 1 : -1;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    if (NameIs(list.substr(begin, i - begin), host)) return !host.empty();
    begin = i + 1;
  }
  return false;
}

absl::StatusOr<Job> ParseJob(std::string_view text, uint32_t job, std::string_view node) {
  const std::string start = absl::StrCat("JobId=", job, " ");
  std::vector<std::string_view> records;
  for (const std::string_view line : Split(text, '\n'))
    if (line.starts_with(start)) records.push_back(line);
  if (records.empty()) return absl::NotFoundError(absl::StrCat("the controller knows no job ", job));
  const std::vector<Part> parts = PartsOn(records[0], node);
  if (records.size() > 1 || parts.size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the controller's record of job ", job,
        " can be read in several ways; do not put such text into the job's name, folder or comment"));
  }
  if (parts.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the controller has allocated nothing on node ", std::string(node), " to job ", job,
                     "; `node` in agent.yaml must be the name of this machine in slurm.conf"));
  }
  ASSIGN_OR_RETURN(const uint32_t share, ShareOf(parts[0].gres));
  return Job{share, ArrayOf(records[0])};
}

absl::StatusOr<std::map<uint32_t, ListedJob>> ParseList(std::string_view text) {
  std::map<uint32_t, ListedJob> jobs;
  for (const std::string_view line : Split(text, '\n')) {
    if (line.empty()) continue;
    const std::vector<std::string_view> words = Split(line, ' ');
    uint32_t id = 0;
    ListedJob job;
    if (words.size() != 3 || !ReadNumber(words[0], id) || !ReadNumber(words[2], job.uid))
      return absl::InternalError(
          absl::StrCat("squeue printed \"", PrintableText(line, 80), "\", not \"17 RUNNING 1000\""));
    job.runs = std::ranges::find(kRuns, words[1]) != kRuns.end();
    job.holds = job.runs || std::ranges::find(kBeginsOrEnds, words[1]) != kBeginsOrEnds.end();
    jobs[id] = job;
  }
  return jobs;
}

absl::StatusOr<Job> Jobs::Ask(uint32_t job) const {
  ASSIGN_OR_RETURN(const std::string text,
                   RunCommand({options_.scontrol, "show", "job", "-d", "-o", absl::StrCat(job)},
                              {.time = options_.patience}));
  return ParseJob(text, job, options_.node);
}

absl::StatusOr<std::map<uint32_t, ListedJob>> Jobs::List() const {
  ASSIGN_OR_RETURN(const std::string text, RunCommand({options_.squeue, "--noheader", "--all", "--states=all",
                                                       absl::StrCat("--nodelist=", options_.node),
                                                       absl::StrCat("--format=", kJobFormat)},
                                                      {.time = options_.patience}));
  return ParseList(text);
}

}  // namespace xpud::agent::slurm
