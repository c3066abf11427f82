#include "daemon/service/flight_dumps.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/service/control_records.h"
#include "proto/base/clock.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/base/trust.h"
#include "proto/base/unique_fd.h"
#include "proto/control/xpud.pb.h"

namespace xpud::service {
namespace {

constexpr mode_t kMode = 0600;  // it shows what a tenant computes

std::string TextOf(uint32_t device, const records::EndedSession& session) {
  v1::ReadFlightResponse flight;
  flight.set_time_ns(NowNs());
  FillFlight(session, device, /*most=*/0, *flight.add_flights());
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.add_whitespace = true;
  std::string text;
  static_cast<void>(google::protobuf::util::MessageToJsonString(flight, &text, options));
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kMode));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat(path, " cannot be created"));
  for (size_t written = 0; written != text.size();) {
    const ssize_t count = write(file.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, " cannot be written"));
    written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FlightDumps>> FlightDumps::Open(std::string folder,
                                                               telemetry::EventLog& events) {
  std::error_code error;
  if (std::filesystem::create_directories(folder, error))
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("flight-dumps: files cannot be written to ", folder));
  // Files show what tenants compute, and the oldest are removed by name: nobody else may choose the folder.
  if (absl::Status ours = CheckFolderIsOurs(folder); !ours.ok())
    return absl::Status(ours.code(), absl::StrCat("flight-dumps: ", ours.message()));
  folder = std::filesystem::canonical(folder, error).string();
  return std::unique_ptr<FlightDumps>(new FlightDumps(std::move(folder), events));
}

FlightDumps::~FlightDumps() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
    changed_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status FlightDumps::Start() {
  ASSIGN_OR_RETURN(thread_, StartThread("xpud-dumps", [this] { Run(); }));
  return absl::OkStatus();
}

void FlightDumps::Add(uint32_t device, const records::EndedSession& session) {
  const MutexLock lock(mutex_);
  if (waiting_.size() == kMaxWaiting) {
    spdlog::warn("flight_not_dumped id={} device={} error=\"{} others wait to be written\"", session.id,
                 device, waiting_.size());
    return;
  }
  waiting_.push_back({device, session});
  changed_.NotifyOne();
}

void FlightDumps::Run() {
  for (;;) {
    std::vector<Dump> dumps;
    {
      const MutexLock lock(mutex_);
      while (waiting_.empty() && !ends_) changed_.Wait(mutex_);
      if (waiting_.empty()) return;
      dumps.assign(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(waiting_.end()));
      waiting_.clear();
    }
    for (const Dump& dump : dumps) Write(dump);
  }
}

void FlightDumps::Write(const Dump& dump) {
  const records::EndedSession& session = dump.session;
  RemoveOldest();
  const std::string time = absl::FormatTime("%Y%m%dT%H%M%E3SZ", absl::Now(), absl::UTCTimeZone());
  const std::string path =
      absl::StrCat(folder_, "/", kPrefix, time, "-session-", session.id, "-device-", dump.device, ".json");
  const absl::Status written = WriteFile(path, TextOf(dump.device, session));
  if (!written.ok()) unlink(path.c_str());
  const std::string text = written.ok() ? path : std::string(written.message());
  if (written.ok())
    spdlog::info("flight_dumped id={} device={} path=\"{}\"", session.id, dump.device, path);
  else
    spdlog::warn("flight_not_dumped id={} device={} error=\"{}\"", session.id, dump.device, text);
  events_.Add({.kind = written.ok() ? "flight_dumped" : "flight_not_dumped",
               .session = telemetry::Event::Session{session.id, session.pid, session.tenant, session.name},
               .device = dump.device,
               .text = text});
}

// Names begin with their time, so their order is that of their times.
void FlightDumps::RemoveOldest() const {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(".json")) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (size_t i = 0; i + kMaxFiles <= files.size(); ++i) std::filesystem::remove(files[i], error);
}

}  // namespace xpud::service
