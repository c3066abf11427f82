// What `xpuctl query` can be asked for: nvidia-smi's fields by its names, and xpud's own. Pure functions but
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
  // Without the unit. Null: nothing that xpud runs on measures it.
  std::optional<std::string> (*value)(const QuerySample& sample);
  bool rate = false;  // needs two samples that lie apart
};

std::span<const QueryField> QueryFields();

// "index,memory.total"; InvalidArgument as nvidia-smi says it.
absl::StatusOr<std::vector<const QueryField*>> ParseQueryFields(std::string_view list);

struct QueryFormat {
  bool header = true, units = true;
};
// "csv[,noheader][,nounits]".
absl::StatusOr<QueryFormat> ParseQueryFormat(std::string_view text);

// Lines as nvidia-smi's: ", " between values, "[N/A]" for what is not measured.
std::string QueryHeader(std::span<const QueryField* const> fields);
std::string QueryLine(std::span<const QueryField* const> fields, const QuerySample& sample, bool units);

// What --help-query-gpu prints.
std::string QueryHelp();

}  // namespace xpud::xpuctl
