// Writes metrics as text for Prometheus: its format 0.0.4, or OpenMetrics 1.0. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xpud::telemetry {

enum class Format { kPrometheus, kOpenMetrics };

// The Content-Type of a response in this format.
std::string_view ContentType(Format format);

enum class Type { kCounter, kGauge, kHistogram };

// The unit of the values that are written, as a part of Prometheus's unit (seconds, for instance). Each is
// the number of decimals.
enum class Scale : int { kOne = 0, kThousandths = 3, kTenThousandths = 4, kMillionths = 6, kNanoseconds = 9 };

// All series of one name. In both formats the name of a counter ends in `_total`.
struct Family {
  std::string_view name;
  Type type;
  Scale scale;
  std::string_view help;
};

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Returns `{name="value",...}`. Values may come from a client.
std::string LabelsText(const Labels& labels);

class Exposition {
 public:
  explicit Exposition(Format format) : format_(format) {}

  void Begin(const Family& family);
  // Adds a series to the family that was begun last. `labels` comes from LabelsText, or is empty.
  void Add(std::string_view labels, uint64_t value);
  // Adds a histogram of durations to a family that is one, in seconds. `counts`: of each class of
  // proto/base/histogram.h.
  void AddHistogram(const Labels& labels, std::span<const uint64_t> counts, uint64_t sum_ns);
  std::string Finish() &&;

 private:
  const Format format_;
  Family family_ = {};
  std::string text_;
};

}  // namespace xpud::telemetry
