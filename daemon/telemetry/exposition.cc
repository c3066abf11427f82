#include "daemon/telemetry/exposition.h"

#include <array>

#include "proto/base/histogram.h"
#include "proto/base/text.h"

namespace xpud::telemetry {
namespace {

constexpr std::string_view kTotal = "_total";

// Writes a decimal such as "1.5" exactly. A double would lose nanoseconds after 104 days.
void AppendDecimal(uint64_t value, int decimals, std::string& out) {
  std::string digits = std::to_string(value);
  const auto places = static_cast<size_t>(decimals);
  if (digits.size() <= places) digits.insert(0, places + 1 - digits.size(), '0');
  out.append(digits, 0, digits.size() - places);
  std::string_view fraction = std::string_view(digits).substr(digits.size() - places);
  fraction = fraction.substr(0, fraction.find_last_not_of('0') + 1);
  if (!fraction.empty()) out.append(".").append(fraction);
}

// Both formats escape the backslash and the quote. Printable text has no line breaks.
void AppendEscaped(std::string_view value, std::string& out) {
  for (const char c : PrintableText(value)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
}

std::string_view TypeName(Type type) {
  return type == Type::kCounter ? "counter" : type == Type::kGauge ? "gauge" : "histogram";
}

std::string SecondsText(uint64_t ns) {
  std::string text;
  AppendDecimal(ns, static_cast<int>(Scale::kNanoseconds), text);
  return text;
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
  // In OpenMetrics the suffix belongs to the sample, not to the family.
  if (format_ == Format::kOpenMetrics && name.ends_with(kTotal)) name.remove_suffix(kTotal.size());
  const std::array<std::string_view, 9> parts = {
      "# HELP ", name, " ", family.help, "\n# TYPE ", name, " ", TypeName(family.type), "\n"};
  for (const std::string_view part : parts) text_ += part;
}

void Exposition::Add(std::string_view labels, uint64_t value) {
  text_ += family_.name;
  text_ += labels;
  text_ += ' ';
  AppendDecimal(value, static_cast<int>(family_.scale), text_);
  text_ += '\n';
}

void Exposition::AddHistogram(const Labels& labels, std::span<const uint64_t> counts, uint64_t sum_ns) {
  const std::string name(family_.name);
  const auto line = [&](std::string_view suffix, const std::string& labels_text, const std::string& value) {
    for (const std::string_view part :
         {std::string_view(name), suffix, std::string_view(labels_text), std::string_view(" "),
          std::string_view(value), std::string_view("\n")})
      text_ += part;
  };
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    Labels with_bound = labels;
    with_bound.emplace_back("le", i < Histogram::kBounds ? SecondsText(Histogram::BoundNs(i)) : "+Inf");
    line("_bucket", LabelsText(with_bound), std::to_string(total));
  }
  line("_sum", LabelsText(labels), SecondsText(sum_ns));
  line("_count", LabelsText(labels), std::to_string(total));
}

std::string Exposition::Finish() && {
  if (format_ == Format::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace xpud::telemetry
