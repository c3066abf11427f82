// What the kubelet sends xpud-node-agent: the first byte selects a device plugin's Allocate or
// GetPreferredAllocation, calls of a driver of dynamic resource allocation, or the list of containers.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/tenant/claim.h"
#include "deploy/agent/core/inventory.h"
#include "deploy/agent/kubelet/device_plugin.pb.h"
#include "deploy/agent/kubelet/dra.pb.h"
#include "deploy/agent/kubelet/pod_resources.pb.h"
#include "deploy/agent/kubernetes/cdi_files.h"
#include "deploy/agent/kubernetes/container_labels.h"
#include "deploy/agent/kubernetes/dra_answers.h"
#include "deploy/agent/kubernetes/names.h"
#include "deploy/agent/kubernetes/pod_resources.h"
#include "deploy/agent/kubernetes/slot_requests.h"
#include "deploy/agent/kubernetes/slots.h"
#include "deploy/agent/kubernetes/tombstones.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/claim.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/fuzz/temporary_folder.h"

namespace xpud::fuzz {
namespace {

using namespace agent::kubernetes;
namespace dra = ::k8s::io::kubelet::pkg::apis::dra::v1;

template <typename Message>
bool Parse(std::span<const std::byte> bytes, Message& message) {
  return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

void CheckReason(std::string_view text) { XPUD_CHECK(!text.empty() && PrintableText(text) == text); }

void CheckRefusal(const absl::Status& status) {
  XPUD_CHECK(absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status));
  CheckReason({status.message().data(), status.message().size()});
}

agent::Inventory TakeInventory(Bytes& input) {
  agent::Inventory inventory;
  inventory.devices.resize(1 + input.Take<uint8_t>() % 4);
  for (uint32_t index = 0; index < inventory.devices.size(); ++index) {
    inventory.devices[index].index = index;
    inventory.devices[index].share = 100;
    inventory.devices[index].memory_bytes = uint64_t{input.Take<uint16_t>()} << 20;
  }
  return inventory;
}

// A container's claim: a part of the devices as large as its slots, which are there.
void CheckContainer(const SlotSet& slots, const agent::Inventory& inventory, uint32_t each) {
  absl::StatusOr<v1::Claim> claim = ClaimOf(slots, inventory, each);
  if (!claim.ok()) return CheckRefusal(claim.status());
  std::map<uint32_t, uint64_t> counts;
  for (const Slot& slot : slots) {
    XPUD_CHECK(slot.device < inventory.devices.size() && slot.index < each);
    ++counts[slot.device];
  }
  XPUD_CHECK(static_cast<size_t>(claim->devices().size()) == counts.size());
  // All the claims of a device's slots together are not more than the device.
  for (const auto& [device, count] : counts) {
    XPUD_CHECK(uint64_t{claim->weight()} * each <= 100 * count);
    XPUD_CHECK(claim->memory_least_bytes() * each <= inventory.devices[device].memory_bytes * count);
  }
  XPUD_CHECK(SlotsOf(*claim) == slots);  // an agent that starts knows them
  claim->set_key("dp-key");
  SetContainer(*claim, {.name_space = "n", .pod = "p", .container = "c", .slots = slots});
  CheckTaken(*claim, inventory.devices.size());
}

void Allocate(Bytes& input) {
  const uint32_t each = 1 + input.Take<uint8_t>() % kMaxSlots;
  const agent::Inventory inventory = TakeInventory(input);
  v1beta1::AllocateRequest request;
  if (!Parse(input.rest(), request)) return;
  const std::string ids = IdsText(request);
  XPUD_CHECK(PrintableText(ids) == ids);
  const auto containers = SlotsOf(request);
  if (!containers.ok()) return CheckRefusal(containers.status());
  XPUD_CHECK(containers->size() == static_cast<size_t>(request.container_requests().size()));
  for (const SlotSet& slots : *containers) CheckContainer(slots, inventory, each);
}

void CheckPreferred(const v1beta1::ContainerPreferredAllocationRequest& request,
                    const v1beta1::ContainerPreferredAllocationResponse& response) {
  const auto& required = request.must_include_deviceids();
  const std::set<std::string> needed(required.begin(), required.end());
  std::set<std::string> offered(request.available_deviceids().begin(), request.available_deviceids().end());
  offered.insert(needed.begin(), needed.end());
  const std::set<std::string> chosen(response.deviceids().begin(), response.deviceids().end());
  XPUD_CHECK(chosen.size() == static_cast<size_t>(response.deviceids().size()));
  XPUD_CHECK(std::ranges::includes(chosen, needed) && std::ranges::includes(offered, chosen));
  const auto size = static_cast<size_t>(request.allocation_size());
  XPUD_CHECK(chosen.size() == std::max(needed.size(), std::min(size, offered.size())));
}

void Preferred(Bytes& input) {
  v1beta1::PreferredAllocationRequest request;
  if (!Parse(input.rest(), request)) return;
  const auto response = Prefer(request);
  if (!response.ok()) return CheckRefusal(response.status());
  XPUD_CHECK(response->container_responses().size() == request.container_requests().size());
  for (int i = 0; i < request.container_requests().size(); ++i)
    CheckPreferred(request.container_requests(i), response->container_responses(i));
}

// A node without daemon and API server: a claim that is prepared has its file, and no other file is touched.
class Node {
 public:
  absl::StatusOr<DraDriver::Prepared> Prepare(const ClaimName& name) {
    if (absl::Status status = CheckClaimName(name); !status.ok()) return status;
    XPUD_CHECK(CheckKey(KeyOf(name.uid)).ok());
    CheckPath(name);
    const CdiClaim file{name.uid, name.name_space, name.name, {"pod-1"}, "/run/xpud/doors/d"};
    XPUD_CHECK(files_.Write(file).ok());
    const auto read = files_.Read(name.uid);
    XPUD_CHECK(read.ok() && *read == file);
    prepared_.insert(name.uid);
    return DraDriver::Prepared{.devices = {{"r", "n", "xpud-0", "s", 0}}, .cdi_id = CdiFiles::IdOf(name.uid)};
  }

  absl::Status Unprepare(const ClaimName& name) {
    if (!IsUid(name.uid)) return absl::InvalidArgumentError("no uid");
    XPUD_CHECK(stones_->Add(name.uid, {"pod-1"}).ok());
    XPUD_CHECK(files_.Remove(name.uid).ok());
    prepared_.erase(name.uid);
    unprepared_.insert(name.uid);
    return absl::OkStatus();
  }

  // What the next agent finds.
  void Check() const {
    const auto files = files_.List();
    XPUD_CHECK(files.ok() && files->unreadable.empty());
    std::set<std::string> uids;
    for (const CdiClaim& claim : files->claims) uids.insert(claim.uid);
    XPUD_CHECK(uids == prepared_);
    const auto stones = Tombstones::Open(stones_path_);
    for (const std::string& uid : unprepared_) XPUD_CHECK(stones->Contains(uid));
  }

 private:
  // The path has no more parts than it should have, and nothing that a URL gives a meaning.
  static void CheckPath(const ClaimName& name) {
    const std::string path = ClaimPath(name.name_space, name.name);
    XPUD_CHECK(std::ranges::count(path, '/') == 7 && path.find("..") == std::string::npos);
    XPUD_CHECK(path.find_first_of("?#%\\ ") == std::string::npos && PrintableText(path) == path);
  }

  const TemporaryFolder folder_;
  const std::string stones_path_ = folder_.path() + "/tombstones";
  const CdiFiles files_{folder_.path() + "/cdi"};
  const std::unique_ptr<Tombstones> stones_ = Tombstones::Open(stones_path_);
  std::set<std::string> prepared_, unprepared_;
};

// Each uid of the request has one answer, and the kubelet can read it.
template <typename Request, typename Response>
void CheckAnswers(const Request& request, const Response& response) {
  std::set<std::string> asked, answered;
  for (const dra::Claim& claim : request.claims()) asked.insert(claim.uid());
  for (const auto& [uid, answer] : response.claims()) {
    answered.insert(uid);
    if (!answer.error().empty()) CheckReason(answer.error());
  }
  XPUD_CHECK(asked == answered);
  Response read;
  XPUD_CHECK(read.ParseFromString(response.SerializeAsString()));
}

void PrepareAll(Node& node, std::span<const std::byte> bytes) {
  dra::NodePrepareResourcesRequest request;
  if (!Parse(bytes, request)) return;
  const auto response = AnswerPrepare(request, [&](const ClaimName& name) { return node.Prepare(name); });
  CheckAnswers(request, response);
  // A claim is either prepared or has an error.
  for (const auto& [uid, answer] : response.claims())
    XPUD_CHECK(answer.error().empty() != answer.devices().empty());
}

void UnprepareAll(Node& node, std::span<const std::byte> bytes) {
  dra::NodeUnprepareResourcesRequest request;
  if (!Parse(bytes, request)) return;
  CheckAnswers(request,
               AnswerUnprepare(request, [&](const ClaimName& name) { return node.Unprepare(name); }));
}

void Calls(Bytes& input) {
  Node node;
  while (!input.empty()) {
    const auto action = input.Take<uint8_t>();
    const std::span<const std::byte> bytes = input.Take(input.Take<uint8_t>());
    action % 2 == 0 ? PrepareAll(node, bytes) : UnprepareAll(node, bytes);
  }
  node.Check();
}

void CheckSlots(const ContainerSlots& container) {
  XPUD_CHECK(!container.slots.empty());
  for (const Slot& slot : container.slots) XPUD_CHECK(ReadSlotId(SlotId(slot)) == slot);
  v1::Claim claim;
  claim.set_key("dp-key");
  claim.set_weight(1);
  SetContainer(claim, container);
  CheckTaken(claim);
}

// Lists of containers: only this driver's claims and slots are seen, and their labels are the daemon's.
void Containers(Bytes& input) {
  ::v1::ListPodResourcesResponse answer;
  if (!Parse(input.rest(), answer)) return;
  const PodResources::Look look = PodResources::Read(answer, /*is_complete=*/false);
  std::set<std::string> ours;
  size_t containers = 0;
  for (const auto& pod : answer.pod_resources()) {
    for (const auto& container : pod.containers()) {
      ++containers;
      for (const auto& resource : container.dynamic_resources())
        for (const auto& part : resource.claim_resources())
          if (part.driver_name() == "xpud.dev")
            for (const auto& device : part.cdi_devices()) ours.insert(device.name());
    }
  }
  XPUD_CHECK(look.containers.size() <= containers);
  std::ranges::for_each(look.containers, CheckSlots);
  for (const auto& [uid, names] : look.claims) {
    XPUD_CHECK(ours.contains(CdiFiles::IdOf(uid)) && !names.empty());
    v1::Claim claim;
    claim.set_key("k8s-key");
    claim.set_weight(1);
    (*claim.mutable_labels())[kContainerLabel] = ContainersText(names);
    CheckTaken(claim);
  }
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  QuietProtobuf();
  Bytes input(data, size);
  switch (input.Take<uint8_t>() % 4) {
    case 0:
      Allocate(input);
      break;
    case 1:
      Preferred(input);
      break;
    case 2:
      Calls(input);
      break;
    default:
      Containers(input);
  }
  return 0;
}
