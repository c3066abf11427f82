#include "deploy/agent/kubernetes/container_labels.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {

void SetContainer(v1::Claim& claim, const ContainerSlots& container) {
  auto& labels = *claim.mutable_labels();
  labels[kNamespaceLabel] = PrintableText(container.name_space, kMaxLabel);
  labels[kPodLabel] = PrintableText(container.pod, kMaxLabel);
  labels[kContainerLabel] = PrintableText(container.container, kMaxLabel);
}

std::string ContainersText(const std::set<std::pair<std::string, std::string>>& containers) {
  std::set<std::string> pods;
  for (const auto& [pod, container] : containers) pods.insert(pod);
  const std::string text = absl::StrJoin(containers, ",", [&](std::string* out, const auto& each) {
    absl::StrAppend(out, pods.size() > 1 ? each.first + "/" : "", each.second);
  });
  return PrintableText(text, kMaxLabel);
}

}  // namespace xpud::agent::kubernetes
