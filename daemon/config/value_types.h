// The types of values in the option table. Each one names the member of Options that it sets.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/config/option_table.h"

namespace xpud::config {

// Returns "'12x' is not allowed; use ...".
inline absl::Status NotAllowed(const std::string& found, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat("'", found, "' is not allowed; use ", allowed));
}

template <typename Member>
auto Copy(Member Options::* member) {
  return [=](const Options& from, Options& to) { to.*member = from.*member; };
}

inline ValueType Text(std::string Options::* member, const std::string& allowed) {
  return {allowed,
          [=](Options& options, const std::string& text, Source) {
            if (text.empty()) return NotAllowed(text, allowed);
            options.*member = text;
            return absl::OkStatus();
          },
          [=](const Options& options) { return options.*member; }, Copy(member)};
}

// `Number` is int or optional<int>.
template <typename Number>
ValueType Integer(Number Options::* member, int least, int most = INT_MAX) {
  std::string allowed = most == INT_MAX ? absl::StrCat("an integer of at least ", least)
                                        : absl::StrCat("an integer from ", least, " to ", most);
  return {allowed,
          [=](Options& options, const std::string& text, Source) {
            int number = 0;
            if (!absl::SimpleAtoi(text, &number) || number < least || number > most)
              return NotAllowed(text, allowed);
            options.*member = number;
            return absl::OkStatus();
          },
          [=](const Options& options) {
            const std::optional<int> number = options.*member;
            return number ? absl::StrCat(*number) : "";
          },
          Copy(member)};
}

// Bytes; `Number` is uint64_t or optional<uint64_t>.
template <typename Number>
ValueType Size(Number Options::* member, uint64_t least = 0) {
  std::string allowed =
      absl::StrCat("a size with a unit, such as 16GiB or 512MiB", least == 0 ? "" : ", at least 1MiB");
  return {allowed,
          [=](Options& options, const std::string& text, Source source) {
            uint64_t bytes = 0;
            if (!ReadSize(text, source, bytes).ok() || bytes < least) return NotAllowed(text, allowed);
            options.*member = bytes;
            return absl::OkStatus();
          },
          [=](const Options& options) {
            const std::optional<uint64_t> bytes = options.*member;
            return bytes ? absl::StrCat(*bytes, "B") : "";
          },
          Copy(member)};
}

// The same, or "auto", which is no number.
ValueType SizeOrAuto(std::optional<uint64_t> Options::* member);

// Seconds with at most three decimals, from `least` to `most` milliseconds. In milliseconds.
ValueType Seconds(uint32_t Options::* member, uint32_t least, uint32_t most);

// One of `words`; `to` and `from` convert between the word and the member's type.
template <typename Word>
ValueType Choice(Word Options::* member, std::span<const std::string_view> words) {
  std::string allowed = absl::StrCat(
      "one of ", absl::StrJoin(words, ", ", [](std::string* out, auto word) { out->append(word); }));
  return {allowed,
          [=](Options& options, const std::string& text, Source) {
            for (size_t w = 0; w < words.size(); ++w) {
              if (words[w] != text) continue;
              if constexpr (std::is_enum_v<Word>)
                options.*member = static_cast<Word>(w);
              else
                options.*member = text;
              return absl::OkStatus();
            }
            return NotAllowed(text, allowed);
          },
          [=](const Options& options) {
            if constexpr (std::is_enum_v<Word>)
              return std::string(words[static_cast<size_t>(options.*member)]);
            else
              return options.*member;
          },
          Copy(member)};
}

// An address for metrics (telemetry::CheckAddress).
ValueType MetricsAddress(std::string Options::* member);

// A percentage of 0 to `most`, with at most two decimals: "2.5%" or "2.5". In hundredths of a per cent.
ValueType Percent(uint32_t Options::* member, uint32_t most);

// The octal mode of a file.
ValueType Mode(unsigned Options::* member);

inline ValueType Switch(bool Options::* member) {
  return {"",
          [=](Options& options, const std::string& text, Source) {
            if (text != "true" && text != "false") return NotAllowed(text, "true or false");
            options.*member = text == "true";
            return absl::OkStatus();
          },
          [=](const Options& options) { return options.*member ? "true" : "false"; }, Copy(member)};
}

}  // namespace xpud::config
