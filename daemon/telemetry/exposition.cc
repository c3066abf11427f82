#include "daemon/telemetry/exposition.h"

#include <array>

#include "proto/base/text.h"

namespace xpud::telemetry {
namespace {

constexpr std::string_view kTotal = "_total";
constexpr uint64_t kNanosecondsInSecond = 1'000'000'000;

// "1.5": exact, which a double would not be after 104 days.
void AppendSeconds(uint64_t nanoseconds, std::string& out) {
  out += std::to_string(nanoseconds / kNanosecondsInSecond);
  std::string fraction = std::to_string(kNanosecondsInSecond + nanoseconds % kNanosecondsInSecond);
  fraction[0] = '.';
  while (fraction.back() == '0') fraction.pop_back();
  if (fraction.size() > 1) out += fraction;
}

// Both formats' rule: a backslash before itself and the quote; what is printable has no line's end.
void AppendEscaped(std::string_view value, std::string& out) {
  for (const char c : PrintableText(value)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
}

}  // namespace

std::string_view ContentType(Format format) {
  return format == Format::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                        : "text/plain; version=0.0.4; charset=utf-8";
}

std::string LabelsText(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels) {
    text += text.empty() ? '{' : ',';
    text += name;
    text += "=\"";
    AppendEscaped(value, text);
    text += '"';
  }
  if (!text.empty()) text += '}';
  return text;
}

void Exposition::Begin(const Family& family) {
  family_ = family;
  std::string_view name = family.name;
  // To OpenMetrics the suffix is the sample's, not the family's.
  if (format_ == Format::kOpenMetrics && name.ends_with(kTotal)) name.remove_suffix(kTotal.size());
  const std::array<std::string_view, 9> parts = {
      "# HELP ",   name, " ", family.help,
      "\n# TYPE ", name, " ", family.type == Type::kCounter ? "counter" : "gauge",
      "\n"};
  for (const std::string_view part : parts) text_ += part;
}

void Exposition::Add(std::string_view labels, uint64_t value) {
  text_ += family_.name;
  text_ += labels;
  text_ += ' ';
  if (family_.scale == Scale::kNanoseconds)
    AppendSeconds(value, text_);
  else
    text_ += std::to_string(value);
  text_ += '\n';
}

std::string Exposition::Finish() && {
  if (format_ == Format::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace xpud::telemetry
