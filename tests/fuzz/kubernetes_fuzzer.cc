// What xpud-node-agent reads of Kubernetes: the first byte selects a ResourceClaim, a quantity, a CDI file or
// JSON.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>

#include "deploy/agent/kubernetes/cdi_files.h"
#include "deploy/agent/kubernetes/json.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/quantity.h"
#include "deploy/agent/kubernetes/resource_claim.h"
#include "proto/base/check.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/claim.h"

namespace xpud::fuzz {
namespace {

using namespace agent::kubernetes;

// An accepted claim must be one that the daemon takes.
void ReadClaim(std::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok()) return;
  const auto read = ReadAllocation(*json, "u-1", "n");
  if (!read.ok()) {
    XPUD_CHECK(!read.status().message().empty());
    return;
  }
  const v1::Claim claim = ClaimOf(*read);
  CheckTaken(claim);
  XPUD_CHECK(claim.time_least() == 95 * claim.weight());
}

// Compares with floating point, which knows no limits.
void ReadQuantity(std::string_view text) {
  const auto read = WholeQuantity(text);
  if (!read.ok()) return;
  static const std::map<std::string, long double> kScales = {
      {"", 1},         {"n", 1e-9L},    {"u", 1e-6L},    {"m", 1e-3L},   {"k", 1e3L},     {"M", 1e6L},
      {"G", 1e9L},     {"T", 1e12L},    {"P", 1e15L},    {"E", 1e18L},   {"Ki", 0x1p10L}, {"Mi", 0x1p20L},
      {"Gi", 0x1p30L}, {"Ti", 0x1p40L}, {"Pi", 0x1p50L}, {"Ei", 0x1p60L}};
  const std::string copy(text);
  char* suffix = nullptr;
  const long double number = std::strtold(copy.c_str(), &suffix);
  const auto scale = kScales.find(suffix);
  XPUD_CHECK(suffix != copy.c_str() && scale != kScales.end());
  const long double value = number * scale->second;
  XPUD_CHECK(std::abs(value - static_cast<long double>(*read)) <= value * 1e-12L);
  XPUD_CHECK(*WholeQuantity(BinaryQuantity(*read)) == *read &&
             *WholeQuantity(DecimalQuantity(*read)) == *read);
}

void ReadFile(std::string_view text) {
  const auto read = ReadCdiText(text);
  if (!read.ok()) return;
  XPUD_CHECK(IsUid(read->uid) && IsObjectName(read->name) && IsObjectName(read->name_space));
  XPUD_CHECK(read->door.starts_with('/') && std::ranges::all_of(read->pods, IsUid));
  XPUD_CHECK(CdiText(*read) == text);
}

void ReadJson(std::string_view text) {
  const auto read = ParseJson(text);
  if (!read.ok()) return;
  const auto again = ParseJson(JsonText(*read));
  XPUD_CHECK(again.ok() && JsonText(*again) == JsonText(*read));
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  Bytes input(data, size);
  switch (input.Take<uint8_t>() % 4) {
    case 0:
      ReadClaim(input.text());
      break;
    case 1:
      ReadQuantity(input.text());
      break;
    case 2:
      ReadFile(input.text());
      break;
    default:
      ReadJson(input.text());
  }
  return 0;
}
