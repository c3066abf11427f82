#include "sdk/remote/connector.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/descriptor_error.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::remote {
namespace {

constexpr int kGraceMs = 1000;  // time for the gateway to learn of the end

}  // namespace

absl::StatusOr<std::unique_ptr<Connector>> Connector::Connect(const StreamClient::Options& options,
                                                              const transport::Hello& hello,
                                                              UniqueFd socket) {
  std::unique_ptr<Connector> connector(new Connector(options, std::move(socket)));
  connector->ended_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  if (!connector->ended_.valid()) return DescriptorError("eventfd");
  ASSIGN_OR_RETURN(connector->session_, StreamClient::OpenSession(options, hello));
  connector->devices_[0].stream = std::move(connector->session_.stream);
  RETURN_IF_ERROR(connector->Start(0));
  RETURN_IF_ERROR(transport::SendMessage(connector->socket_.get(),
                                         std::as_bytes(std::span(&connector->session_.welcome, 1))));
  return connector;
}

absl::Status Connector::Start(uint32_t device) {
  OnDevice& started = devices_[device];
  const auto run = [this, stream = started.stream.get()] {
    const std::string why = stream->Run();
    {
      MutexLock lock(mutex_);
      if (why_ended_.empty()) {
        why_ended_ = why;
        ended_as_ = stream->closed_as();
      }
    }
    eventfd_write(ended_.get(), 1);
  };
  auto thread = StartThread(absl::StrCat("xpud-send-", device), run);
  if (!thread.ok()) {
    started.stream.reset();
    return thread.status();
  }
  started.thread = *std::move(thread);
  ++running_;
  return absl::OkStatus();
}

absl::Status Connector::OpenDevice(uint32_t device) {
  if (device >= session_.welcome.device_count || device >= transport::kMaxDevices)
    return absl::InvalidArgumentError(absl::StrCat("device ", device, " does not exist"));
  OnDevice& opened = devices_[device];
  if (opened.fds_sent) return absl::AlreadyExistsError("the session uses this device already");
  if (opened.stream == nullptr) {
    ASSIGN_OR_RETURN(opened.stream,
                     StreamClient::OpenDevice(options_, session_.key, session_.resumable, device));
    RETURN_IF_ERROR(Start(device));
  }
  opened.fds_sent = true;
  return absl::OkStatus();
}

bool Connector::TakeRequest() {
  transport::Request request = {};
  UniqueFd memory;
  if (!transport::ReceiveMessage(socket_.get(), std::as_writable_bytes(std::span(&request, 1)), {&memory, 1})
           .ok())
    return false;
  absl::Status status = absl::UnimplementedError(
      request.kind == transport::RequestKind::kShareMemory
          ? "host memory cannot be shared with a daemon on another machine"
          : "a session with a daemon on another machine is profiled there, by xpuctl profile");
  if (request.kind == transport::RequestKind::kOpenDevice) {
    status = OpenDevice(request.id);
    if (status.ok())
      return transport::SendDevice(socket_.get(), request.id, devices_[request.id].stream->TakeFds()).ok();
  }
  if (request.kind == transport::RequestKind::kSetNice)
    status = StreamClient::SetNice(options_, session_.key, request.id);
  const transport::Answer answer = transport::MakeAnswer(request.id, status);
  return transport::SendMessage(socket_.get(), std::as_bytes(std::span(&answer, 1))).ok();
}

void Connector::Run(const UniqueFd& client) {
  pollfd events[] = {
      {socket_.get(), POLLIN | POLLRDHUP, 0}, {client.get(), POLLIN, 0}, {ended_.get(), POLLIN, 0}};
  while (true) {
    poll(events, 3, -1);
    if (events[1].revents != 0 || events[2].revents != 0) break;
    if (events[0].revents == 0) continue;
    const bool hung_up = (events[0].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    if (hung_up || !TakeRequest()) break;
  }
  Leave();
}

void Connector::Leave() {
  {
    MutexLock lock(mutex_);
    for (OnDevice& device : devices_) {
      if (device.stream == nullptr) continue;
      if (why_ended_.empty())
        device.stream->Leave();
      else
        device.stream->Close(why_ended_, ended_as_);
    }
  }
  pollfd ended = {ended_.get(), POLLIN, 0};
  while (running_ > 0) {
    eventfd_t one;
    if (poll(&ended, 1, kGraceMs) == 1 && eventfd_read(ended_.get(), &one) == 0) {
      --running_;
      continue;
    }
    for (OnDevice& device : devices_) {
      if (device.stream != nullptr) device.stream->Cut();
    }
  }
  for (OnDevice& device : devices_) {
    if (device.thread.joinable()) device.thread.join();
  }
}

Connector::~Connector() { Leave(); }

}  // namespace xpud::remote
