// Writes metrics as text that Prometheus reads: its own format 0.0.4, or OpenMetrics 1.0. One thread at a
// time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xpud::telemetry {

enum class Format { kPrometheus, kOpenMetrics };

// What answers in this format are declared as.
std::string_view ContentType(Format format);

enum class Type { kCounter, kGauge };

// What the values that are written were counted in: parts of the unit that Prometheus wants, as seconds. Each
// is the number of its decimals.
enum class Scale : int { kOne = 0, kThousandths = 3, kMillionths = 6, kNanoseconds = 9 };

// All series of one name, which in both formats ends in `_total` for a counter.
struct Family {
  std::string_view name;
  Type type;
  Scale scale;
  std::string_view help;
};

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// `{name="value",...}`. Values may be what a client wrote.
std::string LabelsText(const Labels& labels);

class Exposition {
 public:
  explicit Exposition(Format format) : format_(format) {}

  void Begin(const Family& family);
  // A series of the family that was begun last; `labels` is what LabelsText made, or empty.
  void Add(std::string_view labels, uint64_t value);
  std::string Finish() &&;

 private:
  const Format format_;
  Family family_ = {};
  std::string text_;
};

}  // namespace xpud::telemetry
