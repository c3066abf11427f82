#include "daemon/service/control_records.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/tenant/claim.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"
#include "proto/ops/op_table.h"

namespace xpud::service {
namespace {

using records::CommandRecord;
using records::FlightRecord;
using records::TensorShape;
using wire::CommandKind;

constexpr uint64_t kDefaultCommands = 100'000, kMaxCommands = 4'000'000;
constexpr uint64_t kReply = 4096;  // commands or samples in a reply
// What is copied in one visit of a lane, which takes 20 to 40 us.
constexpr uint64_t kProfilePiece = 1024, kFlightPiece = 2048, kSamplePiece = 1024;
constexpr size_t kSessionPiece = 64;

// The names of the records that are read, by number.
using Names = absl::flat_hash_map<uint32_t, std::shared_ptr<const std::string>>;

const char* NameOf(CommandKind kind) {
  switch (kind) {
    case CommandKind::kNop:
      return "nop";
    case CommandKind::kAllocate:
      return "allocate";
    case CommandKind::kFree:
      return "free";
    case CommandKind::kExecute:
      return "execute";
    case CommandKind::kUpload:
    case CommandKind::kUploadInline:
      return "upload";
    case CommandKind::kDownload:
      return "download";
    case CommandKind::kCopy:
      return "copy";
    case CommandKind::kCreateQueue:
      return "create queue";
    case CommandKind::kDestroyQueue:
      return "destroy queue";
    case CommandKind::kTimestamp:
      return "timestamp";
    case CommandKind::kWait:
      return "wait";
    case CommandKind::kClearError:
      return "clear error";
    case CommandKind::kReleaseMemory:
      return "release memory";
    case CommandKind::kReserve:
      return "reserve";
    case CommandKind::kRange:
      return "range";
    case CommandKind::kDefineKernel:
      return "define kernel";
    case CommandKind::kForgetKernel:
      return "forget kernel";
    case CommandKind::kPrepareKernel:
      return "prepare kernel";
    case CommandKind::kShare:
      return "share";
    case CommandKind::kAttach:
      return "attach";
    case CommandKind::kLend:
      return "lend";
    case CommandKind::kCopyFrom:
      return "copy from another device";
  }
  return "unknown";
}

// Reads "uid:1000", "uid:1000/name" or "claim:web".
absl::StatusOr<Tenant> ParseTenant(std::string_view text) {
  constexpr std::string_view kClaim = "claim:";
  if (text.starts_with(kClaim)) {
    const std::string_view key = text.substr(kClaim.size());
    RETURN_IF_ERROR(CheckKey(key));
    return Tenant::OfClaim(std::string(key));
  }
  Tenant tenant;
  constexpr std::string_view kUid = "uid:";
  const std::string_view rest = text.starts_with(kUid) ? text.substr(kUid.size()) : text;
  const auto [after, error] = std::from_chars(rest.data(), rest.data() + rest.size(), tenant.uid);
  const size_t digits = static_cast<size_t>(after - rest.data());
  const bool has_name = digits < rest.size();
  if (rest.size() == text.size() || error != std::errc() || (has_name && rest[digits] != '/')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no tenant '", PrintableText(text, 64), "'; a tenant is uid:NUMBER, uid:NUMBER/NAME or claim:KEY"));
  }
  if (has_name) tenant.name = rest.substr(digits + 1);
  return tenant;
}

template <typename Record>
std::string OpOf(const Record& record) {
  const ops::Row* const row =
      record.kind == CommandKind::kExecute ? ops::FindRow(uint16_t{record.row}) : nullptr;
  return row == nullptr ? NameOf(record.kind) : std::string(row->aten.substr(0, row->aten.find('|')));
}

std::string TextOf(const TensorShape& shape) {
  const size_t shown = std::min<size_t>(shape.rank, TensorShape::kSizes);
  return absl::StrCat(std::string(ops::Info(static_cast<ops::DType>(shape.dtype)).name), "[",
                      absl::StrJoin(shape.sizes.begin(), shape.sizes.begin() + shown, ","),
                      shown < shape.rank ? ",.." : "", "]");
}

std::string ShapesOf(const CommandRecord& record) {
  const ops::Row* const row = ops::FindRow(uint16_t{record.row});
  const size_t outputs = row == nullptr ? 0 : row->outputs;
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(record.tensors, CommandRecord::kTensors); ++i)
    absl::StrAppend(&text, i == 0 ? "" : i == outputs ? " = " : ", ", TextOf(record.shapes[i]));
  if (record.tensors > CommandRecord::kTensors) absl::StrAppend(&text, ", ..");
  return text;
}

void Fill(const CommandRecord& record, const Names& names, v1::ProfiledCommand& out) {
  out.set_sequence(record.sequence);
  out.set_op(OpOf(record));
  if (record.tensors != 0) out.set_shapes(ShapesOf(record));
  out.set_queue(record.queue);
  out.set_arrived_ns(record.arrived_ns);
  out.set_decoded_ns(record.decoded_ns);
  out.set_submitted_ns(record.submitted_ns);
  out.set_began_ns(record.began_ns);
  out.set_ended_ns(record.ended_ns);
  out.set_device_ns(record.device_ns);
  out.set_bytes(record.bytes);
  out.set_operations(static_cast<uint64_t>(std::clamp(record.operations, 0.0F, 1e18F)));
  if (record.kernel != 0) {
    const bool is_range = record.kind == CommandKind::kRange;
    const std::string& name = *names.at(record.kernel);
    is_range ? out.set_range(PrintableText(name)) : out.set_kernel(name);
  }
  out.set_launches(record.launches);
  if (record.stall != records::Stall::kNone)
    out.set_waited_for(records::kStallNames[static_cast<size_t>(record.stall)]);
  out.set_refused(record.refused);
  out.set_exact(record.exact);
  out.set_memory_bytes(record.memory_bytes);
  out.set_published(record.published);
  out.set_appended_ns(record.appended_ns);
  out.set_append_ns(record.append_ns);
  out.set_replayed(record.replayed);
}

// `kernel`: the name of the loop kernel that it ran; empty if it ran none, or one without a name.
void Fill(const FlightRecord& record, const std::string& kernel, v1::FlightCommand& out) {
  out.set_sequence(record.sequence);
  out.set_op(kernel.empty() ? OpOf(record) : "loop kernel " + kernel);
  if (record.has_output) out.set_output(TextOf(record.output));
  out.set_queue(record.queue);
  out.set_run_ns(record.run_ns);
  out.set_copied_bytes(record.copied_bytes);
  out.set_launches(record.launches);
  out.set_refused(record.refused);
}

void Fill(const records::MemorySample& sample, v1::MemorySample& out) {
  out.set_time_ns(sample.time_ns);
  if (sample.tenant != nullptr) out.set_tenant(*sample.tenant);
  out.set_on_device_bytes(sample.bytes.on_device);
  out.set_moved_out_bytes(sample.bytes.moved_out);
  out.set_shared_bytes(sample.bytes.shared);
  out.set_saved_bytes(sample.bytes.saved);
  out.set_host_bytes(sample.bytes.host);
}

// `Session`: a DeviceSession's peer, or an EndedSession.
template <typename Session, typename Message>
void FillPeer(const Session& session, uint64_t id, uint32_t device, Message& out) {
  out.set_session(id);
  out.set_device(device);
  out.set_pid(session.pid);
  out.set_client_name(session.name);
  out.set_tenant(session.tenant.Text());
}

// The number of the first of the `most` newest records, or of all if that is 0.
uint64_t FirstOf(const records::Ring<FlightRecord>& ring, uint64_t most) {
  return most == 0 ? ring.first() : std::max(ring.first(), ring.added() - std::min(most, ring.added()));
}

}  // namespace

const records::Recorder* RecordReader::FindRecorder(lane::Lane& lane, uint64_t session) const {
  if (const session::DeviceSession* const open = lane.Find(session))
    return Sees(open->peer().tenant) ? &open->recorder() : nullptr;
  const records::EndedSession* const ended = lane.ended().Find(session);
  return ended == nullptr || !Sees(ended->tenant) ? nullptr : ended->recorder.get();
}

template <typename Session>
void RecordReader::AddProfile(const records::Recorder& recorder, const Session& session, uint64_t id,
                              lane::Lane& lane, v1::ListProfilesResponse& out) const {
  const records::Profile* const profile = recorder.profile(audience_);
  if (profile == nullptr || !Sees(session.tenant)) return;
  v1::ProfileInfo& info = *out.add_profiles();
  FillPeer(session, id, lane.index(), info);
  info.set_commands(profile->records.added() - profile->records.first());
  info.set_overwritten(profile->records.first());
  info.set_running(!profile->stopped && NowNs() < profile->until_ns);
  info.set_times(lane.properties().synchronous ? "appended" : "reported");
}

absl::StatusOr<records::Selection> RecordReader::SelectionOf(const v1::ProfileSelection& wanted) {
  records::Selection selection;
  if (wanted.of_case() == v1::ProfileSelection::kSession) {
    const auto session = lanes_.registry().Find(wanted.session());
    if (session == nullptr || !Sees(session->peer().tenant))
      return absl::InvalidArgumentError(absl::StrCat("there is no session ", wanted.session()));
    selection.session = wanted.session();
  } else if (wanted.of_case() == v1::ProfileSelection::kTenant) {
    ASSIGN_OR_RETURN(selection.tenant, ParseTenant(wanted.tenant()));
    if (!Sees(*selection.tenant))
      return absl::PermissionDeniedError(
          absl::StrCat("you see the sessions of ", viewer_->Text(), "; only operators see others"));
  } else {
    selection.tenant = viewer_;
  }
  return selection;
}

absl::Status RecordReader::Start(const v1::StartProfileRequest& request, v1::StartProfileResponse& out) {
  ASSIGN_OR_RETURN(const records::Selection selection, SelectionOf(request.selection()));
  const uint64_t commands = request.commands() == 0 ? kDefaultCommands : request.commands();
  if (commands > kMaxCommands) {
    return absl::InvalidArgumentError(absl::StrCat("a profile of ", commands, " commands; at most ",
                                                   kMaxCommands, " are kept for each session and device"));
  }
  uint64_t until = UINT64_MAX;
  if (request.duration_ms() != 0)
    until = NowNs() + std::min<uint64_t>(request.duration_ms(), uint64_t{1} << 40) * 1'000'000;
  absl::Status failed;
  size_t sessions = 0;
  lanes_.VisitEach([&](lane::Lane& lane) {
    const absl::StatusOr<size_t> started = lane.profiles().Start({audience_, selection, commands, until});
    failed.Update(started.status());
    if (started.ok()) sessions += *started;
  });
  if (!failed.ok()) StopOn(selection);
  lanes_.SettleProfiles();
  out.set_sessions(static_cast<uint32_t>(sessions));
  return failed;
}

size_t RecordReader::StopOn(const records::Selection& selection) {
  size_t sessions = 0;
  lanes_.VisitEach([&](lane::Lane& lane) { sessions += lane.profiles().Stop(audience_, selection); });
  return sessions;
}

absl::Status RecordReader::Stop(const v1::StopProfileRequest& request, v1::StopProfileResponse& out) {
  records::Selection selection;
  if (request.selection().of_case() == v1::ProfileSelection::kSession) {
    selection.session = request.selection().session();  // it may have ended
    const auto session = lanes_.registry().Find(*selection.session);
    if (session != nullptr && !Sees(session->peer().tenant))
      RETURN_IF_ERROR(SelectionOf(request.selection()).status());
  } else {
    ASSIGN_OR_RETURN(selection, SelectionOf(request.selection()));
  }
  const size_t sessions = StopOn(selection);
  lanes_.SettleProfiles();
  out.set_sessions(static_cast<uint32_t>(sessions));
  return absl::OkStatus();
}

void RecordReader::List(v1::ListProfilesResponse& out) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  out.set_unix_ns(static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  out.set_time_ns(NowNs());
  lanes_.VisitEach([&](lane::Lane& lane) {
    for (const records::EndedSession& ended : lane.ended().sessions()) {
      const int before = out.profiles_size();
      AddProfile(*ended.recorder, ended, ended.id, lane, out);
      if (out.profiles_size() != before) out.mutable_profiles(before)->set_ended(true);
    }
  });
  lanes_.VisitSessions(kSessionPiece, [&](lane::Lane& lane, const session::DeviceSession& open) {
    AddProfile(open.recorder(), open.peer(), open.id(), lane, out);
  });
}

absl::Status RecordReader::CheckDevice(uint32_t device) const {
  if (device < lanes_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("there is no device ", device, "; there are ", lanes_.size()));
}

absl::Status RecordReader::Read(const v1::ReadProfileRequest& request, v1::ReadProfileResponse& out) {
  RETURN_IF_ERROR(CheckDevice(request.device()));
  std::vector<CommandRecord> records;
  records.reserve(kReply);
  Names names;
  names.reserve(kReply);
  const records::Profile* read = nullptr;
  bool found = false, more = true;
  uint64_t next = request.from();
  while (more && records.size() < kReply) {
    found = more = false;
    lanes_[request.device()].Visit([&] {
      const records::Recorder* const recorder = FindRecorder(lanes_[request.device()], request.session());
      if (recorder == nullptr || recorder->profile(audience_) == nullptr) return;
      found = true;
      const records::Profile& profile = *recorder->profile(audience_);
      // Another one may have begun since the last visit: its numbers and names are others.
      if (std::exchange(read, &profile) != &profile && !records.empty()) return;
      const records::Ring<CommandRecord>& ring = profile.records;
      const uint64_t first = std::min(std::max(next, ring.first()), ring.added());
      next = std::min(first + kProfilePiece, ring.added());
      more = next < ring.added();
      for (uint64_t i = first; i < next; ++i) {
        records.push_back(ring[i]);
        if (ring[i].kernel != 0) names.try_emplace(ring[i].kernel, profile.names[ring[i].kernel]);
      }
    });
  }
  if (!found) {
    return absl::InvalidArgumentError(
        absl::StrCat("session ", request.session(), " has no profile on device ", request.device()));
  }
  out.set_next(next);
  for (const CommandRecord& record : records) Fill(record, names, *out.add_commands());
  return absl::OkStatus();
}

absl::Status RecordReader::Read(const v1::ReadMemoryHistoryRequest& request,
                                v1::ReadMemoryHistoryResponse& out) {
  RETURN_IF_ERROR(CheckDevice(request.device()));
  std::vector<records::MemorySample> samples;
  samples.reserve(kReply);
  uint64_t next = request.from();
  bool more = audience_ == records::Audience::kOperators;  // there is no history of others' profiles
  while (more && samples.size() < kReply) {
    lanes_[request.device()].Visit([&] {
      const records::MemoryHistory& history = lanes_[request.device()].profiles().memory();
      const uint64_t first = std::min(std::max(next, history.first()), history.added());
      next = std::min(first + kSamplePiece, history.added());
      more = next < history.added();
      for (uint64_t i = first; i < next; ++i) samples.push_back(history[i]);
    });
  }
  out.set_next(next);
  for (const records::MemorySample& sample : samples) Fill(sample, *out.add_samples());
  return absl::OkStatus();
}

namespace {

void FillEnded(const records::EndedSession& session, uint32_t device, v1::Flight& out) {
  FillPeer(session, session.id, device, out);
  out.set_completed(session.completed);
  out.set_ended(session.reason);
  out.set_ended_ns(session.ended_ns);
  if (!session.waited_for.empty()) out.set_waiting_for(session.waited_for);
}

}  // namespace

void FillFlight(const records::EndedSession& session, uint32_t device, uint64_t most, v1::Flight& out) {
  FillEnded(session, device, out);
  const records::Ring<FlightRecord>& ring = session.recorder->flight();
  out.set_recorded(ring.added());
  const records::NameTable& names = session.recorder->flight_names();
  for (uint64_t i = FirstOf(ring, most); i < ring.added(); ++i)
    Fill(ring[i], *names[ring[i].kernel], *out.add_commands());
}

void RecordReader::ReadFlight(lane::Lane& lane, const v1::ReadFlightRequest& request,
                              v1::ReadFlightResponse& out) {
  std::vector<FlightRecord> records;
  Names names;
  std::optional<uint64_t> next;  // record
  uint64_t end = 0;
  v1::Flight* flight = nullptr;
  do {
    lane.Visit([&] {
      const records::Recorder* const recorder = FindRecorder(lane, request.session());
      if (recorder == nullptr) {
        next = end;  // dropped meanwhile
        return;
      }
      const records::Ring<FlightRecord>& ring = recorder->flight();
      if (flight == nullptr) {
        flight = out.add_flights();
        FillState(lane, request.session(), *flight);
        next = FirstOf(ring, request.commands());
        end = ring.added();
        flight->set_recorded(end);
      }
      if (*next < ring.first()) {  // overwritten meanwhile; what remains must have no gap
        records.clear();
        next = std::min(ring.first(), end);
      }
      const uint64_t last = std::min(*next + kFlightPiece, end);
      for (uint64_t& i = *next; i < last; ++i) {
        records.push_back(ring[i]);
        names.try_emplace(ring[i].kernel, recorder->flight_names()[ring[i].kernel]);
      }
    });
  } while (next && *next < end);
  for (const FlightRecord& record : records) Fill(record, *names.at(record.kernel), *flight->add_commands());
}

void RecordReader::FillState(lane::Lane& lane, uint64_t session, v1::Flight& out) const {
  if (const session::DeviceSession* const open = lane.Find(session)) {
    FillPeer(open->peer(), open->id(), lane.index(), out);
    out.set_completed(open->counters().commands_completed);
    const session::DeviceSession::WaitState state = open->wait_state();
    if (state.has_commands) out.set_waiting_for(records::Describe(state.stall, state.row));
    if (state.since_ns != 0) out.set_waiting_ns(NowNs() - std::min(state.since_ns, NowNs()));
  } else if (const records::EndedSession* const ended = lane.ended().Find(session)) {
    FillEnded(*ended, lane.index(), out);
  }
}

absl::Status RecordReader::Read(const v1::ReadFlightRequest& request, v1::ReadFlightResponse& out) {
  for (uint32_t device = 0; device < lanes_.size(); ++device) ReadFlight(lanes_[device], request, out);
  out.set_time_ns(NowNs());
  if (!out.flights().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("session ", request.session(), " used no device, or ended long ago"));
}

}  // namespace xpud::service
