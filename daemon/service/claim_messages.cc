#include "daemon/service/claim_messages.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/field_mask_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::service {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::util::FieldMaskUtil;
using google::protobuf::util::MessageDifferencer;

// The fields that may be changed, which are those that are granted, without the key.
std::vector<const FieldDescriptor*> GrantedFields() {
  std::vector<const FieldDescriptor*> fields;
  for (int number = v1::Claim::kDevicesFieldNumber; number <= v1::Claim::kDrainedFieldNumber; ++number)
    fields.push_back(v1::Claim::descriptor()->FindFieldByNumber(number));
  return fields;
}

std::string Range(const std::string& least, const std::string& most) {
  return absl::StrCat(least, "..", most);
}

std::string TimeText(const TimeGrant& time) {
  return Range(time.least == 0 ? "" : PercentText(time.least),
               time.most == TimeGrant::kWhole ? "" : PercentText(time.most));
}

std::string MemoryText(const Claim& claim) {
  return Range(claim.memory_least == 0 ? "" : absl::StrCat(claim.memory_least),
               claim.memory_most ? absl::StrCat(*claim.memory_most) : "");
}

// The parts of a claim as people read them, by name; what is not shown in them is named only.
std::vector<std::pair<std::string, std::string>> Parts(const Claim& claim) {
  return {{"devices", absl::StrJoin(claim.devices, ",")},
          {"class", std::string(NameOf(claim.time.priority))},
          {"weight", absl::StrCat(claim.time.weight)},
          {"time", TimeText(claim.time)},
          {"memory", MemoryText(claim)},
          {"sessions", claim.sessions_most ? absl::StrCat(*claim.sessions_most) : "any"},
          {"lifetime", claim.lifetime_ms == 0 ? "for ever" : absl::StrCat(claim.lifetime_ms, " ms")},
          {"paused", claim.time.paused ? "yes" : "no"},
          {"drained", claim.drained ? "yes" : "no"}};
}

}  // namespace

absl::StatusOr<Claim> ReadClaim(const v1::Claim& message, size_t devices) {
  Claim claim;
  claim.key = message.key();
  claim.devices.assign(message.devices().begin(), message.devices().end());
  if (claim.devices.empty()) {
    claim.devices.resize(devices);
    std::iota(claim.devices.begin(), claim.devices.end(), 0);
  }
  if (!message.class_().empty()) {
    const auto priority = PriorityClassOf(message.class_());
    if (!priority) {
      return absl::InvalidArgumentError(absl::StrCat("class \"", PrintableText(message.class_(), 64),
                                                     "\"; it may be realtime, interactive or batch"));
    }
    claim.time.priority = *priority;
  }
  if (message.weight() != 0) claim.time.weight = message.weight();
  claim.time.least = message.time_least();
  if (message.time_most() != 0) claim.time.most = message.time_most();
  claim.time.paused = message.paused();
  claim.memory_least = message.memory_least_bytes();
  if (message.has_memory_most_bytes()) claim.memory_most = message.memory_most_bytes();
  if (message.has_sessions_most()) claim.sessions_most = message.sessions_most();
  claim.labels.insert(message.labels().begin(), message.labels().end());
  for (const v1::Holder& holder : message.holders())
    claim.holders.push_back({holder.uid(), holder.tenant_name()});
  if (message.has_door_uid()) claim.door_uid = message.door_uid();
  claim.lifetime_ms = message.lifetime_ms();
  claim.drained = message.drained();
  RETURN_IF_ERROR(CheckClaim(claim, devices));
  return claim;
}

v1::Claim MessageOf(const Claim& claim) {
  v1::Claim message;
  message.set_key(claim.key);
  for (const uint32_t device : claim.devices) message.add_devices(device);
  message.set_class_(std::string(NameOf(claim.time.priority)));
  message.set_weight(claim.time.weight);
  message.set_time_least(claim.time.least);
  message.set_time_most(claim.time.most);
  message.set_memory_least_bytes(claim.memory_least);
  if (claim.memory_most) message.set_memory_most_bytes(*claim.memory_most);
  if (claim.sessions_most) message.set_sessions_most(*claim.sessions_most);
  message.mutable_labels()->insert(claim.labels.begin(), claim.labels.end());
  for (const Tenant& holder : claim.holders) {
    v1::Holder& out = *message.add_holders();
    out.set_uid(holder.uid);
    out.set_tenant_name(holder.name);
  }
  if (claim.door_uid) message.set_door_uid(*claim.door_uid);
  message.set_lifetime_ms(claim.lifetime_ms);
  message.set_paused(claim.time.paused);
  message.set_drained(claim.drained);
  return message;
}

absl::StatusOr<Claim> Changed(const Claim& claim, const v1::UpdateClaimRequest& request, size_t devices) {
  std::vector<std::string> names;
  for (const FieldDescriptor* field : GrantedFields()) names.emplace_back(field->name());
  const auto& paths = request.update_mask().paths();
  if (paths.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("update_mask is empty; it names fields to change: ", absl::StrJoin(names, ", ")));
  }
  for (const std::string& path : paths) {
    if (std::ranges::find(names, path) == names.end())
      return absl::InvalidArgumentError(absl::StrCat("update_mask has \"", PrintableText(path, 64),
                                                     "\"; it may have ", absl::StrJoin(names, ", ")));
  }
  v1::Claim message = MessageOf(claim);
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  options.set_replace_repeated_fields(true);
  FieldMaskUtil::MergeMessageTo(request.claim(), request.update_mask(), options, &message);
  return ReadClaim(message, devices);
}

std::vector<std::string> DifferingFields(const Claim& a, const Claim& b) {
  const v1::Claim first = MessageOf(a), second = MessageOf(b);
  std::vector<std::string> names;
  for (const FieldDescriptor* field : GrantedFields()) {
    MessageDifferencer differencer;
    if (!differencer.CompareWithFields(first, second, {field}, {field})) names.emplace_back(field->name());
  }
  return names;
}

std::string DescribeChange(const Claim& before, const Claim& after) {
  std::vector<std::string> changes;
  const auto from = Parts(before), to = Parts(after);
  for (size_t i = 0; i < from.size(); ++i) {
    const auto& [name, value] = from[i];
    if (value == to[i].second) continue;
    changes.push_back(absl::StrCat(name, " ", value, " to ", to[i].second));
  }
  if (before.labels != after.labels) changes.emplace_back("labels");
  if (before.holders != after.holders || before.door_uid != after.door_uid) changes.emplace_back("users");
  return absl::StrJoin(changes, ", ");
}

}  // namespace xpud::service
