#include "deploy/agent/kubernetes/resource_claim.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "deploy/agent/core/claim_keeper.h"
#include "deploy/agent/core/claim_part.h"
#include "deploy/agent/kubernetes/claim_parameters.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/quantity.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

constexpr size_t kMaxResults = 32;
constexpr size_t kMaxConfigs = 64;
constexpr size_t kMaxPods = 256;
constexpr size_t kMaxText = 253;  // Kubernetes' own limit of names

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

std::string Shown(std::string_view text) { return absl::StrCat("\"", PrintableText(text, 80), "\""); }

absl::StatusOr<std::string> TextAt(const Json& object, const char* name, const char* where) {
  const auto* text = Member(object, name).get_ptr<const std::string*>();
  if (text == nullptr || text->empty()) return Refuse(where, ".", name, " is missing or no text");
  if (text->size() > kMaxText)
    return Refuse(where, ".", name, " has ", text->size(), " bytes; it may have ", kMaxText);
  return *text;
}

// The elements of an array that may be missing.
absl::StatusOr<const Json::array_t*> ArrayAt(const Json& object, const char* name, const char* where,
                                             size_t most) {
  static const Json::array_t empty;
  const Json& value = Member(object, name);
  if (value.is_null()) return &empty;
  const auto* array = value.get_ptr<const Json::array_t*>();
  if (array == nullptr) return Refuse(where, ".", name, " is not a list");
  if (array->size() > most)
    return Refuse(where, ".", name, " has ", array->size(), " entries; it may have ", most);
  return array;
}

absl::Status ReadIdentity(const Json& claim, std::string_view uid, Allocation& allocation) {
  if (!IsUid(uid)) return Refuse("no claim has the uid ", Shown(uid));
  const Json& metadata = Member(claim, "metadata");
  ASSIGN_OR_RETURN(allocation.name_space, TextAt(metadata, "namespace", "metadata"));
  ASSIGN_OR_RETURN(allocation.name, TextAt(metadata, "name", "metadata"));
  ASSIGN_OR_RETURN(allocation.uid, TextAt(metadata, "uid", "metadata"));
  if (!IsObjectName(allocation.name_space) || !IsObjectName(allocation.name)) {
    return Refuse("no claim is called ", Shown(allocation.name), " in the namespace ",
                  Shown(allocation.name_space));
  }
  if (allocation.uid != uid) {
    return absl::FailedPreconditionError(
        absl::StrCat("the claim ", allocation.name_space, "/", allocation.name, " has the uid ",
                     Shown(allocation.uid), ", not ", View(uid), ": it was deleted and created anew"));
  }
  return absl::OkStatus();
}

absl::Status ReadPods(const Json& status, Allocation& allocation) {
  ASSIGN_OR_RETURN(const Json::array_t* consumers, ArrayAt(status, "reservedFor", "status", kMaxPods));
  allocation.reserved = !consumers->empty();
  for (const Json& consumer : *consumers) {
    if (TextMember(consumer, "resource") != "pods" || !TextMember(consumer, "apiGroup").empty()) continue;
    Allocation::Pod pod;
    ASSIGN_OR_RETURN(pod.name, TextAt(consumer, "name", "status.reservedFor"));
    ASSIGN_OR_RETURN(pod.uid, TextAt(consumer, "uid", "status.reservedFor"));
    allocation.pods.push_back(std::move(pod));
  }
  return absl::OkStatus();
}

// "xpud-3" is the daemon's device 3.
absl::StatusOr<uint32_t> IndexOf(std::string_view device) {
  absl::string_view digits = View(device);
  uint32_t index = 0;
  if (!absl::ConsumePrefix(&digits, kDevicePrefix) || !absl::SimpleAtoi(digits, &index) ||
      absl::StrCat(index) != digits)
    return Refuse("device ", Shown(device), "; this driver's are called ", kDevicePrefix, "0 and so on");
  return index;
}

// What a claim has of one device.
struct Part {
  uint64_t share = 0;
  uint64_t memory = 0;
  bool operator==(const Part&) const = default;
};

absl::StatusOr<uint64_t> Consumed(const Json& capacity, const char* name) {
  const Json& value = Member(capacity, name);
  if (value.is_null()) return Refuse("consumedCapacity has no ", name);
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr) return Refuse("consumedCapacity.", name, " is no quantity");
  const absl::StatusOr<uint64_t> read = WholeQuantity(*text);
  if (!read.ok()) return Refuse("consumedCapacity.", name, ": ", read.status().message());
  return *read;
}

absl::StatusOr<Part> ReadPart(const Json& result) {
  const Json& capacity = Member(result, "consumedCapacity");
  Part part;
  ASSIGN_OR_RETURN(part.share, Consumed(capacity, kShare));
  ASSIGN_OR_RETURN(part.memory, Consumed(capacity, kMemory));
  if (part.share < 1 || part.share > kMaxShare)
    return Refuse("share ", part.share, "; it may be 1 to ", kMaxShare);
  if (part.memory == 0) return Refuse("memory 0; it must be above 0");
  return part;
}

absl::StatusOr<Allocation::Result> ReadResult(const Json& json, std::string_view node) {
  constexpr char kWhere[] = "status.allocation.devices.results";
  Allocation::Result result;
  ASSIGN_OR_RETURN(result.request, TextAt(json, "request", kWhere));
  ASSIGN_OR_RETURN(result.pool, TextAt(json, "pool", kWhere));
  ASSIGN_OR_RETURN(result.device, TextAt(json, "device", kWhere));
  if (result.pool != node)
    return Refuse("the device is in the pool ", Shown(result.pool), "; this node's is ", Shown(node));
  ASSIGN_OR_RETURN(result.index, IndexOf(result.device));
  const Json& admin = Member(json, "adminAccess");
  if (!admin.is_null() && admin != false) return Refuse("adminAccess; this driver has no such access");
  if (Member(json, "shareID").is_null()) {
    return Refuse("the device ", result.device,
                  " was allocated without a shareID; the cluster needs the feature DRAConsumableCapacity");
  }
  ASSIGN_OR_RETURN(result.share_id, TextAt(json, "shareID", kWhere));
  return result;
}

absl::Status AddPart(Part& sum, const Part& part, const std::string& device) {
  sum.share += part.share;
  if (sum.share > kMaxShare)
    return Refuse("shares of ", device, " add up to ", sum.share, "; they may be ", kMaxShare);
  if (__builtin_add_overflow(sum.memory, part.memory, &sum.memory))
    return Refuse("memory of ", device, " adds up to more than 2^64 bytes");
  return absl::OkStatus();
}

absl::Status ReadResults(const Json& devices, std::string_view node, Allocation& allocation) {
  ASSIGN_OR_RETURN(const Json::array_t* results,
                   ArrayAt(devices, "results", "status.allocation.devices", kMaxResults));
  std::map<uint32_t, Part> parts;
  for (const Json& json : *results) {
    if (TextMember(json, "driver") != kDriver) continue;
    ASSIGN_OR_RETURN(Allocation::Result result, ReadResult(json, node));
    ASSIGN_OR_RETURN(const Part part, ReadPart(json));
    RETURN_IF_ERROR(AddPart(parts[result.index], part, result.device));
    allocation.results.push_back(std::move(result));
  }
  if (parts.empty())
    return absl::FailedPreconditionError(absl::StrCat("the claim has no device of the driver ", kDriver));
  const auto& [first_device, first] = *parts.begin();
  for (const auto& [device, part] : parts) {
    if (part == first) continue;
    return Refuse("unequal parts of devices: share ", first.share, ", memory ", first.memory, " of ",
                  kDevicePrefix, first_device, ", but share ", part.share, ", memory ", part.memory, " of ",
                  kDevicePrefix, device,
                  "; a claim must have the same of each, so use a claim for each device");
  }
  allocation.share = static_cast<uint32_t>(first.share);
  allocation.memory = first.memory;
  return absl::OkStatus();
}

// Parameters for this driver, and the requests that they are for; none: for all.
struct Config {
  ClaimParameters parameters;
  std::vector<std::string> requests;

  // `request` may be "parent/sub"; parameters for the parent apply to it.
  bool AppliesTo(std::string_view request) const {
    const std::string_view parent = request.substr(0, request.find('/'));
    return requests.empty() ||
           std::ranges::any_of(requests, [&](const auto& one) { return one == request || one == parent; });
  }
};

absl::StatusOr<Config> ReadConfig(const Json& json) {
  constexpr char kWhere[] = "status.allocation.devices.config";
  Config config;
  ASSIGN_OR_RETURN(const Json::array_t* requests, ArrayAt(json, "requests", kWhere, kMaxResults));
  for (const Json& request : *requests) {
    const auto* text = request.get_ptr<const std::string*>();
    if (text == nullptr || text->size() > kMaxText)
      return Refuse(kWhere, ".requests has an entry that is no name");
    config.requests.push_back(*text);
  }
  ASSIGN_OR_RETURN(config.parameters, ReadClaimParameters(Member(Member(json, "opaque"), "parameters")));
  return config;
}

// Those of classes first, so that those of the claim override them.
absl::StatusOr<std::vector<Config>> ReadConfigs(const Json& devices) {
  ASSIGN_OR_RETURN(const Json::array_t* list,
                   ArrayAt(devices, "config", "status.allocation.devices", kMaxConfigs));
  std::vector<Config> of_classes, of_claim;
  for (const Json& json : *list) {
    if (TextMember(Member(json, "opaque"), "driver") != kDriver) continue;
    const std::string_view source = TextMember(json, "source");
    if (source != "FromClass" && source != "FromClaim")
      return Refuse("parameters from ", Shown(source), "; they may be FromClass or FromClaim");
    ASSIGN_OR_RETURN(Config config, ReadConfig(json));
    (source == "FromClass" ? of_classes : of_claim).push_back(std::move(config));
  }
  std::ranges::move(of_claim, std::back_inserter(of_classes));
  return of_classes;
}

absl::Status ReadParameters(const Json& devices, Allocation& allocation) {
  ASSIGN_OR_RETURN(const std::vector<Config> configs, ReadConfigs(devices));
  ClaimParameters joined;
  for (const Allocation::Result& result : allocation.results) {
    ClaimParameters own;
    for (const Config& config : configs)
      if (config.AppliesTo(result.request)) own.Override(config.parameters);
    RETURN_IF_ERROR(joined.Join(own));
  }
  allocation.class_name = joined.class_name.value_or("");
  allocation.most_time = joined.most_time.value_or(0);
  allocation.sessions = joined.sessions;
  const uint32_t least = kTimeOfAShare * allocation.share;
  if (joined.most_time && *joined.most_time < least) {
    return Refuse("mostTime ", *joined.most_time, " hundredths of a per cent is below ", least,
                  ", which a share of ", allocation.share, " has at least");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Allocation> ReadAllocation(const Json& claim, std::string_view uid, std::string_view node) {
  Allocation allocation;
  RETURN_IF_ERROR(ReadIdentity(claim, uid, allocation));
  const Json& status = Member(claim, "status");
  const Json& granted = Member(status, "allocation");
  if (!granted.is_object()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the claim ", allocation.name_space, "/", allocation.name, " is not allocated"));
  }
  RETURN_IF_ERROR(ReadPods(status, allocation));
  RETURN_IF_ERROR(ReadResults(Member(granted, "devices"), node, allocation));
  RETURN_IF_ERROR(ReadParameters(Member(granted, "devices"), allocation));
  return allocation;
}

v1::Claim ClaimOf(const Allocation& allocation) {
  v1::Claim claim;
  claim.set_key(KeyOf(allocation.uid));
  for (const Allocation::Result& result : allocation.results)
    if (std::ranges::find(claim.devices(), result.index) == claim.devices().end())
      claim.add_devices(result.index);
  claim.set_class_(allocation.class_name);
  SetShare(claim, allocation.share);
  claim.set_time_most(allocation.most_time);
  SetMemory(claim, allocation.memory);
  if (allocation.sessions) claim.set_sessions_most(*allocation.sessions);

  auto& labels = *claim.mutable_labels();
  labels[kEngineLabel] = kEngineName;
  labels[kNamespaceLabel] = allocation.name_space;
  labels["claim"] = allocation.name;
  labels["claim_uid"] = allocation.uid;
  const std::string pods = absl::StrJoin(
      allocation.pods, ",", [](std::string* out, const Allocation::Pod& pod) { out->append(pod.name); });
  if (!pods.empty()) labels[kPodLabel] = PrintableText(pods, kMaxLabel);
  return claim;
}

}  // namespace xpud::agent::kubernetes
