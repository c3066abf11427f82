#include "deploy/agent/kubernetes/device_plugin_registration.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/agent/kubelet/device_plugin.grpc.pb.h"
#include "deploy/agent/kubelet/device_plugin.pb.h"
#include "deploy/agent/kubernetes/kubelet_call.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent::kubernetes {
namespace {

// Between two looks at the folder if inotify tells nothing.
constexpr std::chrono::milliseconds kLookPeriod{1'000};
// After a failure. A new socket of the kubelet's ends the pause.
constexpr std::chrono::milliseconds kFirstPause{100}, kMaxPause{2'000};
// The kubelet listens to the slots' health soon after a registration, or it has not understood it.
constexpr std::chrono::seconds kWatchPatience{10};

}  // namespace

DevicePluginRegistration::DevicePluginRegistration(Parts parts, Interrupt end, UniqueFd changes)
    : parts_(std::move(parts)),
      folder_(absl::StrCat(parts_.kubelet, "/device-plugins")),
      socket_(DevicePluginSocket(parts_.kubelet)),
      kubelet_socket_(absl::StrCat(folder_, "/kubelet.sock")),
      end_(std::move(end)),
      changes_(std::move(changes)) {}

absl::Status DevicePluginRegistration::EnsureServer() {
  if (server_ != nullptr && server_->IsReachable()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckNoAgentAt(socket_));
  RETURN_IF_ERROR(CheckNoAgentAt(DraRegistrationSocket(parts_.kubelet)));
  // A server that ends removes the file of the next one.
  server_.reset();
  registered_.reset();
  ASSIGN_OR_RETURN(server_, DevicePluginServer::Start({.plugin = parts_.plugin,
                                                       .inventory = parts_.inventory,
                                                       .counters = parts_.counters,
                                                       .socket = socket_,
                                                       .slots = parts_.slots}));
  return absl::OkStatus();
}

absl::Status DevicePluginRegistration::Register() {
  v1beta1::RegisterRequest request;
  request.set_version("v1beta1");
  request.set_endpoint(std::filesystem::path(socket_).filename().string());
  request.set_resource_name(kSlotResource);
  request.mutable_options()->set_get_preferred_allocation_available(true);
  return CallKubelet<v1beta1::Registration>(kubelet_socket_, request, &v1beta1::Registration::Stub::Register)
      .status();
}

absl::Status DevicePluginRegistration::Step() {
  // A kubelet that hears of no slot at first would count the node's capacity as 0 for a moment.
  if (parts_.inventory->Current().devices.empty())
    return absl::UnavailableError("the daemon's devices are not known yet");
  RETURN_IF_ERROR(EnsureServer());
  const std::optional<FileIdentity> kubelet = IdentityOf(kubelet_socket_);
  if (!kubelet) {
    registered_.reset();
    return absl::UnavailableError(absl::StrCat("no kubelet serves ", kubelet_socket_));
  }
  const bool is_heard = server_->IsWatched() || Clock::now() < registered_at_ + kWatchPatience;
  if (registered_ == kubelet && is_heard) return absl::OkStatus();
  RETURN_IF_ERROR(Register());
  registered_ = kubelet;
  registered_at_ = Clock::now();
  spdlog::info("registered engine=device-plugin resource={} kubelet={}", kSlotResource, kubelet_socket_);
  return absl::OkStatus();
}

bool DevicePluginRegistration::WaitForChange(std::chrono::milliseconds most) const {
  std::array<pollfd, 2> fds = {pollfd{.fd = end_.fd(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = changes_.get(), .events = POLLIN, .revents = 0}};
  poll(fds.data(), fds.size(), static_cast<int>(most.count()));
  std::array<char, 4096> events;
  while (read(changes_.get(), events.data(), events.size()) > 0) {
  }
  return fds[0].revents == 0;
}

void DevicePluginRegistration::Main() {
  std::chrono::milliseconds pause = kFirstPause;
  bool goes_on = true;
  while (goes_on) {
    // Each time, because the folder may be another one. First, so that no later change is missed.
    inotify_add_watch(changes_.get(), folder_.c_str(), IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_ONLYDIR);
    const std::optional<FileIdentity> kubelet = IdentityOf(kubelet_socket_);
    const absl::Status status = Step();
    parts_.conditions->Set(kKubeletCondition, status);
    if (status.ok()) {
      pause = kFirstPause;
      goes_on = WaitForChange(kLookPeriod);
      continue;
    }
    const auto end = Clock::now() + pause;
    pause = std::min(2 * pause, kMaxPause);
    // Other files come and go without need for an attempt.
    while (goes_on && Clock::now() < end && IdentityOf(kubelet_socket_) == kubelet) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
      goes_on = WaitForChange(std::clamp(rest, std::chrono::milliseconds(1), kLookPeriod));
    }
    if (IdentityOf(kubelet_socket_) != kubelet) pause = kFirstPause;
  }
}

absl::StatusOr<std::unique_ptr<DevicePluginRegistration>> DevicePluginRegistration::Start(Parts parts) {
  parts.conditions->Set(kKubeletCondition,
                        absl::UnavailableError("the kubelet does not know the device plugin yet"));
  ASSIGN_OR_RETURN(Interrupt end, Interrupt::Create());
  UniqueFd changes(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes.valid())
    spdlog::warn("inotify_unusable reason=\"{}\"", strerror(errno));  // poll ignores a negative descriptor
  std::unique_ptr<DevicePluginRegistration> registration(
      new DevicePluginRegistration(std::move(parts), std::move(end), std::move(changes)));
  ASSIGN_OR_RETURN(registration->thread_,
                   StartThread("xpud-kubelet", [self = registration.get()] { self->Main(); }));
  return registration;
}

DevicePluginRegistration::~DevicePluginRegistration() {
  end_.Raise();
  if (thread_.joinable()) thread_.join();
}

}  // namespace xpud::agent::kubernetes
