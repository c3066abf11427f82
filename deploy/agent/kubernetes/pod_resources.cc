#include "deploy/agent/kubernetes/pod_resources.h"

#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/kubelet/pod_resources.grpc.pb.h"
#include "deploy/agent/kubernetes/cdi_files.h"
#include "deploy/agent/kubernetes/kubelet_call.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

namespace kubelet = ::v1;

// How long a kubelet may need to hear of its pods from the API server.
constexpr std::chrono::seconds kKubeletStart{30};

// Whether the kubelet made its socket a while ago. After the clock was set back, it did not: claims stay
// longer.
bool HasRunAWhile(const std::string& socket) {
  struct stat info = {};
  if (stat(socket.c_str(), &info) != 0) return false;
  const auto made = std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec);
  return std::chrono::system_clock::now() - made >= kKubeletStart;
}

SlotSet SlotsOf(const kubelet::ContainerResources& container) {
  SlotSet slots;
  for (const kubelet::ContainerDevices& devices : container.devices()) {
    if (devices.resource_name() != kSlotResource) continue;
    for (const std::string& id : devices.device_ids())
      if (const auto slot = ReadSlotId(id)) slots.insert(*slot);
  }
  return slots;
}

// The uids of the container's claims. A CDI device's name has it, also if another claim has the name again.
std::set<std::string> ClaimsOf(const kubelet::ContainerResources& container) {
  std::set<std::string> uids;
  const std::string prefix = CdiFiles::IdOf("");
  for (const kubelet::DynamicResource& resource : container.dynamic_resources())
    for (const kubelet::ClaimResource& part : resource.claim_resources())
      for (const kubelet::CDIDevice& device : part.cdi_devices())
        if (part.driver_name() == kDriver && device.name().starts_with(prefix))
          uids.insert(device.name().substr(prefix.size()));
  return uids;
}

}  // namespace

PodResources::PodResources(const std::string& kubelet)
    : socket_(absl::StrCat(kubelet, "/pod-resources/kubelet.sock")) {}

PodResources::Look PodResources::Read(const kubelet::ListPodResourcesResponse& answer, bool is_complete) {
  Look look{.containers = {}, .claims = {}, .is_complete = is_complete};
  for (const kubelet::PodResources& pod : answer.pod_resources()) {
    for (const kubelet::ContainerResources& container : pod.containers()) {
      SlotSet slots = SlotsOf(container);
      if (!slots.empty())
        look.containers.push_back({pod.namespace_(), pod.name(), container.name(), std::move(slots)});
      for (const std::string& uid : ClaimsOf(container))
        look.claims[uid].emplace(pod.name(), container.name());
    }
  }
  return look;
}

absl::StatusOr<PodResources::Look> PodResources::List() const {
  // Before the call, too: a kubelet that starts meanwhile may answer it.
  const bool has_run = HasRunAWhile(socket_);
  ASSIGN_OR_RETURN(const kubelet::ListPodResourcesResponse list,
                   (CallKubelet<kubelet::PodResourcesLister>(socket_, kubelet::ListPodResourcesRequest(),
                                                             &kubelet::PodResourcesLister::Stub::List)));
  return Read(list, has_run && HasRunAWhile(socket_));
}

}  // namespace xpud::agent::kubernetes
