// Reports rows of C++ benchmarks, in the format of tests/bench/rows.py.
#pragma once

#include <errno.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace xpud::bench {

// In a smoke run every benchmark does everything, but briefly.
inline bool Smoke() { return std::getenv("XPUD_BENCH_SMOKE") != nullptr; }

// Ends the program if `status` is an error.
inline void Need(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, status.ToString().c_str());
  std::exit(1);
}

// Returns the value. Ends the program if there is none.
template <typename T>
T Take(absl::StatusOr<T> value) {
  Need(value.status());
  return *std::move(value);
}

inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns the quantile of the samples. Sorts them.
inline double Quantile(std::vector<int64_t>& samples, double quantile) {
  std::sort(samples.begin(), samples.end());
  return static_cast<double>(
      samples[static_cast<size_t>(quantile * static_cast<double>(samples.size() - 1))]);
}

struct Row {
  std::string name;
  double value;
  std::string unit;
  std::string baseline = "";
  std::optional<double> baseline_value = std::nullopt;
  struct Target {
    bool of_ratio = false;  // else of the value
    bool at_least = false;  // else at most
    double limit = 0;
  };
  std::optional<Target> target = std::nullopt;
};

// The target as rows.py writes it.
inline std::string TextOf(const Row::Target& target) {
  char text[64];
  std::snprintf(text, sizeof(text), "%s %s %g", target.of_ratio ? "ratio" : "value",
                target.at_least ? ">=" : "<=", target.limit);
  return text;
}

// Whether the row meets its target, as JSON.
inline const char* IsMet(const Row& row) {
  if (!row.target) return "null";
  const double measured = row.target->of_ratio ? row.value / row.baseline_value.value_or(1) : row.value;
  const double excess = row.target->at_least ? row.target->limit - measured : measured - row.target->limit;
  return excess <= 0 ? "true" : "false";
}

inline void Emit(const Row& row) {
  const std::string baseline_value = row.baseline_value ? std::to_string(*row.baseline_value) : "null";
  const std::string ratio = row.baseline_value ? std::to_string(row.value / *row.baseline_value) : "null";
  std::printf(
      "@{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"baseline\":\"%s\",\"baseline_value\":%s,\"ratio\":%"
      "s,\"target\":\"%s\",\"met\":%s}\n",
      row.name.c_str(), row.value, row.unit.c_str(), row.baseline.c_str(), baseline_value.c_str(),
      ratio.c_str(), row.target ? TextOf(*row.target).c_str() : "", IsMet(row));
  std::fflush(stdout);
}

}  // namespace xpud::bench
