// The fields of `xpuctl query`: nvidia-smi's fields by their names, and xpud's own. Pure functions, except
// for the timestamp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/xpuctl/rates.h"

namespace xpud::xpuctl {

struct QuerySample {
  const v1::GetStatusResponse& status;
  const DeviceRates& rates;

  const v1::Device& device() const { return *rates.device; }
};

struct QueryField {
  const char* name;
  const char* alias;  // or empty
  const char* unit;   // or empty
  const char* summary;
  // Returns the value without its unit. Null: xpud cannot measure the field on any device.
  std::optional<std::string> (*value)(const QuerySample& sample);
  bool rate = false;  // needs two samples at different times
};

std::span<const QueryField> QueryFields();

// Parses "index,memory.total". Returns InvalidArgument with nvidia-smi's message.
absl::StatusOr<std::vector<const QueryField*>> ParseQueryFields(std::string_view list);

struct QueryFormat {
  bool header = true, units = true;
};
// Parses "csv[,noheader][,nounits]".
absl::StatusOr<QueryFormat> ParseQueryFormat(std::string_view text);

// Formats lines like nvidia-smi: ", " between values, "[N/A]" for unmeasured ones.
std::string QueryHeader(std::span<const QueryField* const> fields);
std::string QueryLine(std::span<const QueryField* const> fields, const QuerySample& sample, bool units);

// The text of --help-query-gpu.
std::string QueryHelp();

}  // namespace xpud::xpuctl
