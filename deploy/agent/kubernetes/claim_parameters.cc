#include "deploy/agent/kubernetes/claim_parameters.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr std::array<const char*, 5> kFields = {"apiVersion", "kind", "class", "mostTime", "sessions"};
constexpr uint32_t kMaxSessions = 1024;
constexpr size_t kMaxShown = 80;

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

std::string Shown(const Json& value) { return PrintableText(JsonText(value), kMaxShown); }

absl::Status CheckFields(const Json& parameters) {
  if (!parameters.is_object()) return Refuse("parameters ", Shown(parameters), "; they must be an object");
  for (const auto& [name, value] : parameters.items()) {
    if (std::ranges::find(kFields, name) == kFields.end()) {
      return Refuse("unknown parameter \"", PrintableText(name, kMaxShown), "\"; allowed are ",
                    absl::StrJoin(kFields, ", "));
    }
  }
  for (const auto& [name, wanted] :
       {std::pair("apiVersion", kParametersVersion), std::pair("kind", kParametersKind)}) {
    if (TextMember(parameters, name) != wanted)
      return Refuse("parameters with ", name, " ", Shown(Member(parameters, name)), "; it must be \"", wanted,
                    "\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadClass(const Json& value) {
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr || !RankOf(*text))
    return Refuse("class ", Shown(value), "; it may be ",
                  absl::StrJoin(std::vector<std::string>(kClasses.begin(), kClasses.end()), ", "));
  return *text;
}

// A number of per cent, or a text that ends with '%'.
absl::StatusOr<uint32_t> ReadMostTime(const Json& value) {
  double percent = 0;
  const auto* text = value.get_ptr<const std::string*>();
  const bool read = text == nullptr ? value.is_number()
                                    : text->ends_with('%') && text->size() <= 16 && (*text)[0] >= '0' &&
                                          (*text)[0] <= '9' &&
                                          absl::SimpleAtod(text->substr(0, text->size() - 1), &percent);
  if (read && text == nullptr) percent = value.get<double>();
  const double hundredths = std::round(percent * 100);
  if (!read || !(hundredths >= 1 && hundredths <= 10'000) || std::abs(percent * 100 - hundredths) > 1e-6)
    return Refuse("mostTime ", Shown(value), "; it may be 0.01 to 100 per cent, such as 50, 12.5 or \"50%\"");
  return static_cast<uint32_t>(hundredths);
}

absl::StatusOr<uint32_t> ReadSessions(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 || value.get<uint64_t>() > kMaxSessions)
    return Refuse("sessions ", Shown(value), "; it may be a whole number from 1 to ", kMaxSessions);
  return static_cast<uint32_t>(value.get<uint64_t>());
}

template <typename T>
absl::Status JoinOne(const char* name, std::optional<T>& mine, const std::optional<T>& other) {
  if (mine && other && *mine != *other)
    return Refuse("the requests of the claim have different ", name, ": ", *mine, " and ", *other);
  if (other) mine = other;
  return absl::OkStatus();
}

}  // namespace

void ClaimParameters::Override(const ClaimParameters& other) {
  if (other.class_name) class_name = other.class_name;
  if (other.most_time) most_time = other.most_time;
  if (other.sessions) sessions = other.sessions;
}

absl::Status ClaimParameters::Join(const ClaimParameters& other) {
  RETURN_IF_ERROR(JoinOne("class", class_name, other.class_name));
  RETURN_IF_ERROR(JoinOne("mostTime (hundredths of a per cent)", most_time, other.most_time));
  return JoinOne("sessions", sessions, other.sessions);
}

absl::StatusOr<ClaimParameters> ReadClaimParameters(const Json& parameters) {
  RETURN_IF_ERROR(CheckFields(parameters));
  ClaimParameters read;
  if (parameters.contains("class")) {
    ASSIGN_OR_RETURN(read.class_name, ReadClass(Member(parameters, "class")));
  }
  if (parameters.contains("mostTime")) {
    ASSIGN_OR_RETURN(read.most_time, ReadMostTime(Member(parameters, "mostTime")));
  }
  if (parameters.contains("sessions")) {
    ASSIGN_OR_RETURN(read.sessions, ReadSessions(Member(parameters, "sessions")));
  }
  return read;
}

}  // namespace xpud::agent::kubernetes
