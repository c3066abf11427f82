#include "deploy/agent/kubernetes/slice_publisher.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "deploy/agent/kubernetes/names.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::agent::kubernetes {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMinDelay{100};
constexpr milliseconds kMaxDelay{10'000};
// The server ends a watch after this time, so that a connection which is dead without a word is not kept for
// ever.
constexpr int kWatchSeconds = 300;
constexpr milliseconds kMinCorrectionGap{1'000};
constexpr milliseconds kMinWatch{1'000};  // a server that ends watches sooner is asked less often

// 0.1 s, doubled with each failure, to 10 s; between half of it and all, so that nodes do not ask in step.
milliseconds DelayAfter(int failures) {
  const milliseconds whole = std::min(kMaxDelay, kMinDelay * (1 << std::clamp(failures - 1, 0, 10)));
  static thread_local std::minstd_rand random{std::random_device{}()};
  return milliseconds(std::uniform_int_distribution<int64_t>(whole.count() / 2, whole.count())(random));
}

std::string Now() { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()); }

// The object was changed or removed by others meanwhile: it has to be read again.
bool IsStale(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsAlreadyExists(status) || absl::IsOutOfRange(status) ||
         absl::IsNotFound(status);
}

std::string_view VersionOf(const Json& object) {
  return TextMember(Member(object, "metadata"), "resourceVersion");
}

// 0 if it is no generation that this agent could count on from.
int64_t GenerationOf(const Json& slice) {
  constexpr int64_t kMaxGeneration = int64_t{1} << 53;
  const Json& generation = Member(Member(Member(slice, "spec"), "pool"), "generation");
  const int64_t value = generation.is_number_integer() ? generation.get<int64_t>() : 0;
  return value >= 0 && value < kMaxGeneration ? value : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SlicePublisher>> SlicePublisher::Start(ApiServer& server, std::string node,
                                                                      Counters& counters,
                                                                      Conditions& conditions) {
  if (!IsObjectName(node))
    return absl::InvalidArgumentError(absl::StrCat("no node is called \"", PrintableText(node, 80), "\""));
  ASSIGN_OR_RETURN(Interrupt interrupt, Interrupt::Create());
  std::unique_ptr<SlicePublisher> publisher(
      new SlicePublisher(server, std::move(node), counters, conditions, std::move(interrupt)));
  ASSIGN_OR_RETURN(publisher->thread_, StartThread("xpud-slice", [self = publisher.get()] { self->Run(); }));
  return publisher;
}

SlicePublisher::SlicePublisher(ApiServer& server, std::string node, Counters& counters,
                               Conditions& conditions, Interrupt interrupt)
    : server_(server),
      node_(std::move(node)),
      name_(SliceName(node_)),
      counters_(counters),
      conditions_(conditions),
      interrupt_(std::move(interrupt)) {}

SlicePublisher::~SlicePublisher() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  interrupt_.Raise();
  if (thread_.joinable()) thread_.join();
}

void SlicePublisher::Publish(const Inventory& inventory) {
  const MutexLock lock(mutex_);
  if (wanted_ == inventory) return;
  wanted_ = inventory;
  changed_.NotifyAll();
  interrupt_.Raise();
}

bool SlicePublisher::Stopping() const {
  const MutexLock lock(mutex_);
  return stopping_;
}

std::optional<Inventory> SlicePublisher::Wanted() {
  const MutexLock lock(mutex_);
  while (!stopping_ && !wanted_) changed_.Wait(mutex_);
  if (stopping_) return std::nullopt;
  // What is published from now on interrupts the next watch.
  interrupt_.Clear();
  return wanted_;
}

void SlicePublisher::WaitFor(milliseconds delay) {
  const auto end = std::chrono::steady_clock::now() + delay;
  const MutexLock lock(mutex_);
  while (!stopping_) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero()) return;
    changed_.WaitFor(mutex_, left);
  }
}

void SlicePublisher::Run() {
  while (!Stopping()) {
    const absl::Status status = Follow();
    if (Stopping()) return;
    ++failures_;
    // A lost connection or a few stale reads are nothing to report.
    if (failures_ > (IsStale(status) ? 3 : 1)) conditions_.Set("resource-slice", status);
    WaitFor(DelayAfter(failures_));
  }
}

absl::Status SlicePublisher::Follow() {
  if (!Wanted()) return absl::CancelledError("ended");
  RETURN_IF_ERROR(Look());
  while (!Stopping()) {
    RETURN_IF_ERROR(Mend());
    conditions_.Set("resource-slice", CheckWritten());
    failures_ = 0;
    RETURN_IF_ERROR(Watch());
  }
  return absl::CancelledError("ended");
}

absl::Status SlicePublisher::Look() {
  ASSIGN_OR_RETURN(const Json list,
                   server_.Get(absl::StrCat(kSlicesPath, "?fieldSelector=metadata.name%3D", name_)));
  Adopt(nullptr);
  version_ = VersionOf(list);
  const Json& items = Member(list, "items");
  if (!items.is_array()) return absl::OkStatus();
  for (const Json& item : items)
    if (TextMember(Member(item, "metadata"), "name") == name_) Adopt(item);
  return absl::OkStatus();
}

void SlicePublisher::Adopt(Json slice) {
  current_ = std::move(slice);
  if (current_.is_null()) return;
  generation_ = std::max(generation_, GenerationOf(current_));
  if (times_.empty()) times_ = TaintTimesOf(Member(Member(current_, "spec"), "devices"));
}

absl::Status SlicePublisher::Mend() {
  const std::optional<Inventory> wanted = Wanted();
  if (!wanted) return absl::OkStatus();
  Json devices = SliceDevices(*wanted, times_, Now());
  times_ = TaintTimesOf(devices);
  const Json& spec = Member(current_, "spec");
  const bool same = !written_.is_null() && devices == written_;
  if (!current_.is_null() && same && spec == stored_) return absl::OkStatus();
  // What another agent of this version left needs no new generation.
  if (!current_.is_null() && spec == SliceOf(devices, node_, GenerationOf(current_))["spec"]) {
    written_ = std::move(devices);
    stored_ = spec;
    return absl::OkStatus();
  }
  if (same) CountCorrection();
  return Write(devices);
}

// The first one is made at once; if others keep changing the slice, one a second.
void SlicePublisher::CountCorrection() {
  counters_.AddCorrection(kEngineName, "slice_written");
  const auto now = std::chrono::steady_clock::now();
  if (corrected_ + kMinCorrectionGap > now) WaitFor(kMinCorrectionGap);
  corrected_ = std::chrono::steady_clock::now();
}

// Driver, node and pool of a slice cannot be changed.
bool SlicePublisher::IsReplaceable() const {
  const Json& spec = Member(current_, "spec");
  return TextMember(spec, "driver") == kDriver && TextMember(spec, "nodeName") == node_ &&
         TextMember(Member(spec, "pool"), "name") == node_;
}

absl::Status SlicePublisher::Write(const Json& devices) {
  const std::string path = absl::StrCat(kSlicesPath, "/", name_);
  if (!current_.is_null() && !IsReplaceable()) {
    RETURN_IF_ERROR(server_.Delete(path).status());
    current_ = nullptr;
  }
  Json slice = SliceOf(devices, node_, generation_ + 1);
  absl::StatusOr<Json> answer;
  if (current_.is_null()) {
    answer = server_.Post(kSlicesPath, slice);
  } else {
    slice["metadata"] = Member(current_, "metadata");  // its version, and what others have added
    slice["metadata"].erase("managedFields");
    answer = server_.Put(path, slice);
  }
  RETURN_IF_ERROR(answer.status());
  written_ = devices;
  stored_ = Member(*answer, "spec");
  version_ = VersionOf(*answer);
  Adopt(*std::move(answer));
  return absl::OkStatus();
}

// An API server drops fields of features that it has not or that are off.
absl::Status SlicePublisher::CheckWritten() const {
  const Json& devices = Member(stored_, "devices");
  if (!devices.is_array()) return absl::OkStatus();
  for (size_t i = 0; i < devices.size() && i < written_.size(); ++i) {
    if (Member(devices[i], "allowMultipleAllocations") != true) {
      return absl::FailedPreconditionError(
          "the API server has dropped allowMultipleAllocations: the cluster needs the feature "
          "DRAConsumableCapacity");
    }
    if (!Member(written_[i], "taints").is_null() && Member(devices[i], "taints").is_null()) {
      return absl::FailedPreconditionError(
          "the API server has dropped the taint of an unhealthy or drained device: the cluster needs "
          "the feature DRADeviceTaints");
    }
  }
  return absl::OkStatus();
}

bool SlicePublisher::Observe(const Json& event) {
  const Json& object = Member(event, "object");
  version_ = VersionOf(object);
  const std::string_view type = TextMember(event, "type");
  if (type == "BOOKMARK" || TextMember(Member(object, "metadata"), "name") != name_) return true;
  Adopt(type == "DELETED" ? Json() : object);
  return false;
}

absl::Status SlicePublisher::Watch() {
  const std::string path =
      absl::StrCat(kSlicesPath, "?watch=1&allowWatchBookmarks=true&timeoutSeconds=", kWatchSeconds,
                   "&resourceVersion=", version_, "&fieldSelector=metadata.name%3D", name_);
  const auto began = std::chrono::steady_clock::now();
  bool observed = false;
  const absl::Status status = server_.Watch(
      path,
      [&](const Json& event) {
        const bool more = Observe(event);
        observed |= !more;
        return more;
      },
      interrupt_);
  if (absl::IsCancelled(status)) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  if (!observed && std::chrono::steady_clock::now() - began < kMinWatch)
    return absl::UnavailableError("the API server has ended a watch at once");
  return absl::OkStatus();
}

}  // namespace xpud::agent::kubernetes
