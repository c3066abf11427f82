#include "daemon/service/requests.h"

#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/service/client_profile.h"
#include "proto/base/mapping.h"
#include "proto/base/mutex.h"
#include "proto/base/status_macros.h"
#include "proto/transport/handshake.h"
#include "proto/transport/shm_server.h"

namespace xpud::service {
namespace {

constexpr char kInvalidMessage[] = "it sent an invalid message after its Hello";

// Returns a mask of lanes as the client numbers their devices.
uint64_t PeersOf(const session::Session& session, uint64_t lanes) {
  uint64_t peers = 0;
  for (size_t device = 0; device < session.devices().size(); ++device)
    peers |= (lanes >> session.devices()[device] & 1) << device;
  return peers;
}

}  // namespace

void Requests::Take(uint64_t key, const Connection& client) {
  const absl::Status status = Receive(key, client);
  if (status.ok()) return;
  lanes_.Close(*client.session, std::string(status.message()), /*fault=*/true);
  client.ShutDown();
}

absl::Status Requests::Receive(uint64_t key, const Connection& client) {
  Request request;
  UniqueFd memory;
  const absl::Status received = transport::ReceiveMessage(
      client.socket.get(), std::as_writable_bytes(std::span(&request, 1)), {&memory, 1});
  if (absl::IsResourceExhausted(received)) {
    Answer(key, request.id, received);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(received);
  if (memory.valid() != (request.kind == transport::RequestKind::kShareMemory))
    return absl::InvalidArgumentError(kInvalidMessage);
  RETURN_IF_ERROR(connections_.Pause(key));
  switch (request.kind) {
    case transport::RequestKind::kOpenDevice:
      return OpenDevice(key, client, request.id);
    case transport::RequestKind::kShareMemory:
      return ShareMemory(key, client, request, std::move(memory));
    case transport::RequestKind::kStartProfile:
      return StartProfile(key, client, request);
    case transport::RequestKind::kStopProfile:
      return StopProfile(key, client, request.id);
    case transport::RequestKind::kSetNice:
      Answer(key, request.id, lanes_.SetNice(client.session, request.id, /*may_raise=*/false).status());
      return absl::OkStatus();
  }
  return absl::InvalidArgumentError(kInvalidMessage);
}

absl::Status Requests::OpenDevice(uint64_t key, const Connection& client, uint32_t device) {
  const std::optional<uint32_t> index = client.session->LaneOf(device);
  if (!index) return absl::InvalidArgumentError("it opened a device that does not exist");
  const auto fds = std::make_shared<transport::DeviceFds>();
  auto server = transport::ShmServer::Create(*fds);
  if (!server.ok()) {
    Answer(key, device, server.status());
    return absl::OkStatus();
  }
  lane::Lane& lane = lanes_[*index];
  lane.Post([this, &lane, key, device, fds, session = client.session,
             transport = std::shared_ptr<transport::ServerTransport>(*std::move(server))] {
    const absl::Status opened = lane.Open(session, transport);
    inbox_.Post([this, key, device, fds, opened, peers = PeersOf(*session, lane.properties().peers)] {
      if (!opened.ok()) return Answer(key, device, opened);
      const int sent[] = {fds->ring.get(), fds->completion.get(), fds->staging.get(), fds->doorbell.get()};
      Answer(key, device, opened, sent, peers);
    });
  });
  return absl::OkStatus();
}

absl::StatusOr<lane::Lane*> Requests::FindProfiled(lane::Lanes& lanes, const Connection& client,
                                                   uint32_t device) {
  const std::optional<uint32_t> index = client.session->LaneOf(device);
  if (index && client.session->IsOpen(*index)) return &lanes[*index];
  return absl::InvalidArgumentError("it profiles a device that is not open");
}

absl::Status Requests::StartProfile(uint64_t key, const Connection& client, const Request& request) {
  ASSIGN_OR_RETURN(lane::Lane* const found, FindProfiled(lanes_, client, request.id));
  if (request.bytes == 0 || request.bytes > transport::kMaxProfileCommands) {
    Answer(key, request.id,
           absl::InvalidArgumentError(absl::StrCat(
               "a profile of ", request.bytes, " commands; it keeps 1 to ", transport::kMaxProfileCommands)));
    return absl::OkStatus();
  }
  lane::Lane& lane = *found;
  lane.Post([this, &lane, key, request, session = client.session->id()] {
    const absl::Status started = lane.profiles().StartForClient(session, request.bytes);
    lane.profiles().Settle([this, key, request, started] {
      inbox_.Post([this, key, request, started] { Answer(key, request.id, started); });
    });
  });
  return absl::OkStatus();
}

absl::Status Requests::StopProfile(uint64_t key, const Connection& client, uint32_t device) {
  ASSIGN_OR_RETURN(lane::Lane* const found, FindProfiled(lanes_, client, device));
  lane::Lane& lane = *found;
  lane.Post([this, &lane, key, device, session = client.session->id()] {
    lane.profiles().StopForClient(session);
    lane.profiles().Settle([this, &lane, key, device, session] {
      lane.profiles().TakeForClient(session, [this, &lane, key, device](const records::Profile* profile) {
        absl::StatusOr<UniqueFd> written = absl::FailedPreconditionError("no profile was started");
        if (profile != nullptr) written = transport::WriteProfile(ForClient(*profile));
        inbox_.Post([this, &lane, key, device,
                     memory = std::make_shared<absl::StatusOr<UniqueFd>>(std::move(written))] {
          SendProfile(key, lane, device, std::move(*memory));
        });
      });
    });
  });
  return absl::OkStatus();
}

void Requests::SendProfile(uint64_t key, lane::Lane& lane, uint32_t device, absl::StatusOr<UniqueFd> memory) {
  if (connections_.Find(key) == nullptr) return;
  if (!memory.ok()) return Answer(key, device, memory.status());
  const int sent[] = {memory->get()};
  SentProfile& kept = profiles_[key][device];
  if (kept.memory.valid()) Empty(std::move(kept));
  kept = {&lane, *std::move(memory)};
  Answer(key, device, absl::OkStatus(), sent);
}

void Requests::End(uint64_t key) {
  const auto found = profiles_.find(key);
  if (found == profiles_.end()) return;
  for (auto& [device, profile] : found->second) Empty(std::move(profile));
  profiles_.erase(found);
}

void Requests::Empty(SentProfile profile) {
  lane::Lane& lane = *profile.lane;
  lane.Post([&lane, memory = std::make_shared<UniqueFd>(std::move(profile.memory))] {
    lane.profiles().RunAside([memory] { EmptyMemfd(*memory); });
  });
}

absl::Status Requests::ShareMemory(uint64_t key, const Connection& client, const Request& request,
                                   UniqueFd memory) {
  if (request.id == 0) return absl::InvalidArgumentError("host memory was shared under the id 0");
  if (request.devices == 0) return absl::InvalidArgumentError("host memory was shared with no device");
  std::vector<lane::Lane*> lanes;
  for (uint64_t rest = request.devices; rest != 0; rest &= rest - 1) {
    const auto index = client.session->LaneOf(static_cast<uint32_t>(std::countr_zero(rest)));
    if (!index || !client.session->IsOpen(*index))
      return absl::InvalidArgumentError("host memory was shared with a device that is not open");
    lanes.push_back(&lanes_[*index]);
  }
  auto shared = handles::HostMemories::Add(client.session->host_memories(), request.id, std::move(memory),
                                           request.bytes);
  if (!shared.ok()) {
    Answer(key, request.id, shared.status());
    return absl::OkStatus();
  }
  // Answered when the last device has it. Each lane's thread counts its device.
  struct Awaited {
    explicit Awaited(size_t count) : devices(count) {}
    Mutex mutex;
    size_t devices ABSL_GUARDED_BY(mutex);
    absl::Status failure ABSL_GUARDED_BY(mutex);
  };
  const auto awaited = std::make_shared<Awaited>(lanes.size());
  const auto done = [this, key, id = request.id, awaited](const absl::Status& status) {
    MutexLock lock(awaited->mutex);
    awaited->failure.Update(status);
    if (--awaited->devices != 0) return;
    inbox_.Post([this, key, id, status = awaited->failure] { Answer(key, id, status); });
  };
  for (lane::Lane* const lane : lanes) {
    lane->Post([&lanes = lanes_, lane, session = client.session, id = request.id, memory = *shared, done] {
      session::DeviceSession* const on_device = lane->Find(session->id());
      if (on_device == nullptr) return;  // the session is being closed
      const absl::Status status = on_device->ShareHostMemory(id, memory, done);
      if (!status.ok()) lanes.Evict(*session, std::string(status.message()), /*fault=*/true);
    });
  }
  return absl::OkStatus();
}

void Requests::Answer(uint64_t key, uint32_t id, const absl::Status& status, std::span<const int> fds,
                      uint64_t value) {
  const Connection* const client = connections_.Find(key);
  if (client == nullptr) return;
  const transport::Answer answer = transport::MakeAnswer(id, status, value);
  absl::Status sent = client->Send(std::as_bytes(std::span(&answer, 1)), fds);
  if (sent.ok()) sent = connections_.Resume(key);
  if (sent.ok()) return;
  lanes_.Close(*client->session, "it does not read its answers");
  client->ShutDown();
}

}  // namespace xpud::service
