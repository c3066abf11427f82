// The control plane. The first byte selects: bytes as a request to a real control plane over gRPC, or bytes
// as an answer that xpuctl shows. Shown text must not control a terminal, and JSON must match the message.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/field_comparator.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "daemon/lane/testing/memory_device.h"
#include "daemon/scheduler/tenant_shares.h"
#include "daemon/service/claim_desk.h"
#include "daemon/service/claim_doors.h"
#include "daemon/service/claim_store.h"
#include "daemon/service/control.h"
#include "proto/base/check.h"
#include "proto/base/text.h"
#include "proto/control/xpud.grpc.pb.h"
#include "proto/transport/shm_server.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/fuzz/temporary_folder.h"
#include "tools/xpuctl/claim_text.h"
#include "tools/xpuctl/csv.h"
#include "tools/xpuctl/event_view.h"
#include "tools/xpuctl/json.h"
#include "tools/xpuctl/memory_text.h"
#include "tools/xpuctl/profile_stats.h"
#include "tools/xpuctl/profile_trace.h"
#include "tools/xpuctl/views.h"

namespace xpud::fuzz {
namespace {

// Lines of printable text.
void CheckView(std::string_view text) {
  XPUD_CHECK(!text.empty() && text.back() == '\n');
  for (; !text.empty(); text.remove_prefix(FirstCharacter(text).bytes.size()))
    XPUD_CHECK(text.front() == '\n' || FirstCharacter(text).printable);
}

template <typename Message>
void CheckJson(Message message) {
  const std::string text = xpuctl::ToJson(message);
  CheckView(text + "\n");
  Message again;
  XPUD_CHECK(google::protobuf::util::JsonStringToMessage(text, &again).ok());
  message.DiscardUnknownFields();
  google::protobuf::util::DefaultFieldComparator comparator;
  comparator.set_treat_nan_as_equal(true);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_field_comparator(&comparator);
  XPUD_CHECK(differencer.Compare(message, again));
}

void Show(const v1::GetVersionResponse& version) { CheckView(xpuctl::VersionText(version)); }
void Show(const v1::ListDevicesResponse& list) {
  for (const bool wide : {false, true}) CheckView(xpuctl::DevicesText(list, wide));
  CheckView(xpuctl::CsvOf(list.time_ns(), list.devices()).ToString(true));
}
void Show(const v1::ListSessionsResponse& list) {
  for (const bool wide : {false, true}) CheckView(xpuctl::SessionsText(list, wide));
  CheckView(xpuctl::CsvOf(list.time_ns(), list.sessions()).ToString(true));
}
// Of these, only their JSON is checked.
void Show(const v1::ReadFlightResponse&) {}
void Show(const v1::StartProfileResponse&) {}
void Show(const v1::StopProfileResponse&) {}
void Show(const v1::ReadProfileResponse& part) {
  xpuctl::ProfileData data;
  data.sessions.resize(1);
  data.sessions[0].commands.assign(part.commands().begin(), part.commands().end());
  CheckView(xpuctl::StatsText(xpuctl::StatsOf(data)));
  XPUD_CHECK(!xpuctl::ChromeTrace(data).empty());
  (void)xpuctl::PerfettoTrace(data);
}
void Show(const v1::ReadMemoryHistoryResponse& part) {
  xpuctl::ProfileData data;
  data.memory.push_back({0, {part.samples().begin(), part.samples().end()}});
  XPUD_CHECK(!xpuctl::ChromeTrace(data).empty());
  (void)xpuctl::PerfettoTrace(data);
}
void Show(const v1::ListQuotasResponse& list) {
  for (const bool wide : {false, true}) CheckView(xpuctl::QuotasText(list, wide));
  CheckView(xpuctl::CsvOf(list.time_ns(), list.quotas()).ToString(true));
}
void Show(const v1::ListMemoryResponse& list) {
  for (const bool wide : {false, true}) {
    CheckView(xpuctl::MemoryText(list, wide));
    CheckView(xpuctl::HostsText({{"a", &list}}, wide));
  }
  CheckView(xpuctl::CsvOf(list.time_ns(), list.tenants()).ToString(true));
}
void Show(const v1::GetStatusResponse& status) {
  for (const bool wide : {false, true}) CheckView(xpuctl::StatusText(status, wide));
  CheckView(xpuctl::StatusCsv(status).ToString(true));
}

void Show(const v1::SetDrainResponse&) {}  // only its JSON is checked
void Show(const v1::ListEventsResponse& list) {
  uint64_t last = 0;
  for (const v1::Event& event : list.events()) {
    CheckView(xpuctl::EventText(event, last));
    last = event.sequence();
  }
}

void Show(const v1::Claim& claim) { CheckView(xpuctl::ClaimText(claim)); }
void Show(const v1::DeleteClaimResponse&) {}
void Show(const v1::ListClaimsResponse& list) {
  for (const bool wide : {false, true}) CheckView(xpuctl::ClaimsText(list, &list, wide));
  CheckView(xpuctl::CsvOf(list.time_ns(), list.claims()).ToString(true));
  for (const v1::Claim& claim : list.claims()) {
    Show(claim);
    CheckView(xpuctl::ChangeText(list.claims(0), claim) + "\n");
  }
}

void Show(const v1::ListLogResponse& list) {
  for (const v1::LogLine& line : list.lines()) CheckView(xpuctl::LogText(line));
}
void Show(const v1::GetConfigResponse& config) {
  for (const bool wide : {false, true}) CheckView(xpuctl::ConfigText(config, wide));
  CheckView(xpuctl::CsvOf(config.time_ns(), config.values()).ToString(true));
}

// A second sample of the same daemon, from other bytes.
void ShowTop(std::string_view earlier_bytes, std::string_view later_bytes) {
  v1::GetStatusResponse earlier, later;
  if (!earlier.ParseFromArray(earlier_bytes.data(), static_cast<int>(earlier_bytes.size())) ||
      !later.ParseFromArray(later_bytes.data(), static_cast<int>(later_bytes.size())))
    return;
  const xpuctl::Rates rates = xpuctl::Between(earlier, later);
  for (const bool wide : {false, true}) CheckView(xpuctl::TopText(later, rates, wide));
  CheckView(xpuctl::TopCsv(later, rates).ToString(true));
  const std::string json = xpuctl::Document(xpuctl::TopJson(later, rates));
  CheckView(json);
  google::protobuf::Struct parsed;
  XPUD_CHECK(google::protobuf::util::JsonStringToMessage(json, &parsed).ok());
}

template <typename Response>
void ShowBytes(std::string_view bytes) {
  Response response;
  if (!response.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  Show(response);
  CheckJson(response);
}

// A daemon with one device and one session with a named client.
class Daemon {
 public:
  Daemon() {
    std::vector<stream::DeviceState> devices(1);
    devices[0].Use(std::make_unique<lane::MemoryDevice>(/*asynchronous=*/false, uint64_t{64} << 20), 0);
    devices[0].library = *kernels::KernelLibrary::Create({});
    lanes_ = *lane::Lanes::Create(std::move(devices), registry_, {.policy = scheduler::TenantShares::Create});
    const auto session = *registry_.Add({.pid = 1, .tenant = {2}, .name = "client"}, {0},
                                        std::make_shared<handles::HostMemories>(0, false));
    std::shared_ptr<transport::ServerTransport> transport = *transport::ShmServer::Create(fds_);
    lanes_->CallEach([&](lane::Lane& lane) { XPUD_CHECK(lane.Open(session, transport).ok()); });
    sensors_ = std::make_unique<service::SensorSampler>(service::DevicesOf(*lanes_));
    desk_ = *service::ClaimDesk::Start(*lanes_, {.doors = &doors_,
                                                 .sensors = sensors_.get(),
                                                 .store = *service::ClaimStore::Open(folder_.path()),
                                                 .open_door = [](service::Door) {},
                                                 .close_doors = [](const std::string&) {}});
    control_ = *service::Control::Start(
        *lanes_,
        {.client_socket = folder_.path() + "/xpud.sock", .sensors = sensors_.get(), .claims = desk_.get()});
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateChannel("unix:" + folder_.path() + "/control.sock", grpc::InsecureChannelCredentials()));
  }

  // Every valid message must be answered, unless it may be refused.
  template <typename Request, typename Response>
  void Ask(const char* method, std::string_view bytes) {
    const grpc::Slice slice(bytes.data(), bytes.size());
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer answer;
    const grpc::Status status = Call(std::string("/xpud.v1.Control/") + method, request, answer);
    Request parsed;
    const bool message = parsed.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
    XPUD_CHECK(message ? status.ok() || MayRefuse(status) : !status.ok());
    if (!status.ok()) return;
    Response response;
    XPUD_CHECK(grpc::SerializationTraits<Response>::Deserialize(&answer, &response).ok());
    Show(response);
    CheckJson(response);
  }

  // A claim and its file: what the store reads, it has written, or it says why not.
  void LoadFile(std::string_view bytes) {
    const std::string folder = folder_.path() + "/files";
    auto store = *service::ClaimStore::Open(folder);
    const std::string path = folder + "/claims/a.claim";
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    const auto found = store->Load(1);
    XPUD_CHECK(found.claims.size() + found.unreadable.size() == 1);
    if (found.claims.empty()) return;
    XPUD_CHECK(CheckClaim(found.claims[0].claim, 1).ok() && store->Save(found.claims[0]).ok());
  }

 private:
  static bool MayRefuse(const grpc::Status& status) {
    switch (status.error_code()) {
      case grpc::StatusCode::INVALID_ARGUMENT:
      case grpc::StatusCode::ALREADY_EXISTS:
      case grpc::StatusCode::NOT_FOUND:
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return true;
      default:
        return false;
    }
  }
  grpc::Status Call(const std::string& method, const grpc::ByteBuffer& request, grpc::ByteBuffer& answer) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    grpc::CompletionQueue queue;
    const auto call = stub_->PrepareUnaryCall(&context, method, request, &queue);
    call->StartCall();
    grpc::Status status;
    call->Finish(&answer, &status, &status);
    void* tag;
    bool ok;
    XPUD_CHECK(queue.Next(&tag, &ok) && ok && tag == &status);
    return status;
  }

  const TemporaryFolder folder_;
  transport::DeviceFds fds_;
  session::Registry registry_;
  std::unique_ptr<lane::Lanes> lanes_;
  service::ClaimDoors doors_{folder_.path()};
  std::unique_ptr<service::SensorSampler> sensors_;
  std::unique_ptr<service::ClaimDesk> desk_;
  std::unique_ptr<service::Control> control_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

Daemon& TheDaemon() {
  static Daemon daemon;
  return daemon;
}

void Choose(uint8_t which, Bytes input) {
  const std::string_view bytes = input.text();
  switch (which % 34) {
    case 0:
      return ShowBytes<v1::GetStatusResponse>(bytes);
    case 1:
      return ShowBytes<v1::ListDevicesResponse>(bytes);
    case 2:
      return ShowBytes<v1::ListSessionsResponse>(bytes);
    case 3:
      return ShowBytes<v1::GetVersionResponse>(bytes);
    case 4: {
      const size_t earlier = std::min<size_t>(input.Take<uint16_t>(), input.rest().size());
      return ShowTop(input.text().substr(0, earlier), input.text().substr(earlier));
    }
    case 5:
      return TheDaemon().Ask<v1::GetStatusRequest, v1::GetStatusResponse>("GetStatus", bytes);
    case 6:
      return TheDaemon().Ask<v1::ListDevicesRequest, v1::ListDevicesResponse>("ListDevices", bytes);
    case 7:
      return TheDaemon().Ask<v1::ListSessionsRequest, v1::ListSessionsResponse>("ListSessions", bytes);
    case 8:
      return TheDaemon().Ask<v1::GetVersionRequest, v1::GetVersionResponse>("GetVersion", bytes);
    case 9:
      return ShowBytes<v1::ListQuotasResponse>(bytes);
    case 10:
      return TheDaemon().Ask<v1::ListQuotasRequest, v1::ListQuotasResponse>("ListQuotas", bytes);
    case 12:
      return ShowBytes<v1::ListEventsResponse>(bytes);
    case 14:
      return ShowBytes<v1::ListLogResponse>(bytes);
    case 15:
      return ShowBytes<v1::GetConfigResponse>(bytes);
    case 16:
      return TheDaemon().Ask<v1::ListLogRequest, v1::ListLogResponse>("ListLog", bytes);
    case 17:
      return TheDaemon().Ask<v1::GetConfigRequest, v1::GetConfigResponse>("GetConfig", bytes);
    case 18:
      return ShowBytes<v1::ReadProfileResponse>(bytes);
    case 19:
      return ShowBytes<v1::ReadFlightResponse>(bytes);
    case 20:
      return TheDaemon().Ask<v1::StartProfileRequest, v1::StartProfileResponse>("StartProfile", bytes);
    case 21:
      return TheDaemon().Ask<v1::ReadProfileRequest, v1::ReadProfileResponse>("ReadProfile", bytes);
    case 22:
      return TheDaemon().Ask<v1::ReadFlightRequest, v1::ReadFlightResponse>("ReadFlight", bytes);
    case 23:
      return TheDaemon().Ask<v1::StopProfileRequest, v1::StopProfileResponse>("StopProfile", bytes);
    case 24:
      return ShowBytes<v1::ListClaimsResponse>(bytes);
    case 25:
      return TheDaemon().Ask<v1::ListClaimsRequest, v1::ListClaimsResponse>("ListClaims", bytes);
    case 26:
      return TheDaemon().Ask<v1::CreateClaimRequest, v1::Claim>("CreateClaim", bytes);
    case 27:
      return TheDaemon().Ask<v1::UpdateClaimRequest, v1::Claim>("UpdateClaim", bytes);
    case 28:
      return TheDaemon().Ask<v1::DeleteClaimRequest, v1::DeleteClaimResponse>("DeleteClaim", bytes);
    case 29:
      return TheDaemon().LoadFile(bytes);
    case 30:
      return ShowBytes<v1::ListMemoryResponse>(bytes);
    case 31:
      return TheDaemon().Ask<v1::ListMemoryRequest, v1::ListMemoryResponse>("ListMemory", bytes);
    case 32:
      return ShowBytes<v1::ReadMemoryHistoryResponse>(bytes);
    case 33:
      return TheDaemon().Ask<v1::ReadMemoryHistoryRequest, v1::ReadMemoryHistoryResponse>("ReadMemoryHistory",
                                                                                          bytes);
    case 13:
      return TheDaemon().Ask<v1::SetDrainRequest, v1::SetDrainResponse>("SetDrain", bytes);
    default:
      return TheDaemon().Ask<v1::SetQuotaRequest, v1::ListQuotasResponse>("SetQuota", bytes);
  }
}

}  // namespace
}  // namespace xpud::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace xpud::fuzz;
  QuietProtobuf();
  Bytes input(data, size);
  const auto which = input.Take<uint8_t>();
  Choose(which, input);
  return 0;
}
