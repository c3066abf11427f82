// The sockets in the kubelet's folder: where they are, and which agent serves them. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace grpc {
class Channel;
}

namespace xpud::agent::kubernetes {

// The condition that the kubelet knows the agent.
inline constexpr char kKubeletCondition[] = "kubelet";

// By which the kubelet finds the agent. One of them is served: by the mode.
std::string DraRegistrationSocket(const std::string& kubelet);
std::string DevicePluginSocket(const std::string& kubelet);

// Whether a process accepts connections there. Does not block.
bool Answers(const std::string& socket);
// Returns FailedPrecondition if another agent serves `socket`: the kubelet has one agent, of one mode.
absl::Status CheckNoAgentAt(const std::string& socket);

// Which of the files that have been at a path one after the other.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t changed_ns = 0;  // an inode's number may be used again
  bool operator==(const FileIdentity&) const = default;
  // Whether it is the same file, which may have been changed. REQUIRES: one of them is still in use.
  bool IsSameFile(const FileIdentity& other) const { return device == other.device && inode == other.inode; }
};
// Returns nullopt if there is no file.
std::optional<FileIdentity> IdentityOf(const std::string& path);

// A channel of its own to a server on this machine, which connects at the first call. It tries again soon
// after the server has started anew.
std::shared_ptr<grpc::Channel> LocalChannel(const std::string& socket);

}  // namespace xpud::agent::kubernetes
