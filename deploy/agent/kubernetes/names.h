// Names that the agent, its ResourceSlice, claims' parameters and CDI files have in common.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace xpud::agent::kubernetes {

// The driver, which is also CDI's vendor and the parameters' API group.
inline constexpr char kDriver[] = "xpud.dev";
inline constexpr char kCdiClass[] = "claim";
inline constexpr char kCdiKind[] = "xpud.dev/claim";
inline constexpr char kParametersVersion[] = "xpud.dev/v1";
inline constexpr char kParametersKind[] = "ClaimParameters";
inline constexpr char kApiVersion[] = "resource.k8s.io/v1";

// The engine in metrics, and the value of kEngineLabel.
inline constexpr char kEngineName[] = "kubernetes";
inline constexpr char kDevicePluginEngine[] = "device-plugin";

// Labels of claims. The last one has the names of the claim's containers.
inline constexpr char kNamespaceLabel[] = "namespace";
inline constexpr char kPodLabel[] = "pod";
inline constexpr char kContainerLabel[] = "container";
// The longest value of a label.
inline constexpr size_t kMaxLabel = 253;

// What the device plugin gives out.
inline constexpr char kSlotResource[] = "xpud.dev/slot";

// A device of the slice is this and the daemon's index: "xpud-0".
inline constexpr char kDevicePrefix[] = "xpud-";
// Its capacities.
inline constexpr char kMemory[] = "memory";
inline constexpr char kShare[] = "share";
inline constexpr char kClaims[] = "claims";

// For functions of Debian's Abseil, whose string_view is its own.
inline absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

// Whether `text` may be a uid: 1 to 59 lower-case letters, digits and '-', neither first nor last a '-'. Such
// a uid is safe in a path, and "k8s-UID" is a key of the daemon's.
bool IsUid(std::string_view text);
// Whether `text` may name an object: a DNS subdomain of at most 253 bytes. It is safe in a path and in a URL.
bool IsObjectName(std::string_view text);

// How the kubelet names a ResourceClaim. It may be anything until CheckClaimName has found it right.
struct ClaimName {
  std::string name_space, uid, name;
};
// Returns InvalidArgument unless the uid is one and the others name objects.
absl::Status CheckClaimName(const ClaimName& name);

// The daemon's key of a claim. REQUIRES: IsUid(uid).
std::string KeyOf(std::string_view uid);

// Paths of the API server. REQUIRES: IsObjectName of each name.
std::string ClaimPath(std::string_view name_space, std::string_view name);
inline constexpr char kSlicesPath[] = "/apis/resource.k8s.io/v1/resourceslices";

}  // namespace xpud::agent::kubernetes
