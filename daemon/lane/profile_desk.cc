#include "daemon/lane/profile_desk.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/clock.h"
#include "proto/base/status_macros.h"
#include "proto/transport/profile.h"

namespace xpud::lane {
namespace {

using records::Audience;
using session::DeviceSession;

constexpr uint64_t kMaxSettleNs = 500'000'000;
// The longest: a sample that seems to take over a millisecond was interrupted.
constexpr uint64_t kSamplePeriodNs = 10'000'000, kMaxSamplePeriodNs = 100'000'000;
constexpr uint64_t kSampleParts = 100;  // of the lane's time, one may be spent with samples

bool Has(const records::Selection& selection, const DeviceSession& session) {
  return selection.Has(session.id(), session.peer().tenant);
}

// Has the session's client say when it publishes commands, if the session is profiled.
void WantPublishTimes(DeviceSession& session) {
  session.transport().WantPublishTimes(session.recorder().profiling(NowNs()));
}

}  // namespace

ProfileDesk::ProfileDesk(executor::Device& device, std::function<void()> wake,
                         std::function<memory::DeviceMemory()> usage)
    : device_(device), usage_(std::move(usage)) {
  aside_.emplace(std::move(wake), "xpud-profiles");
}

void ProfileDesk::Add(DeviceSession& session) {
  for (const Audience audience : {Audience::kOperators, Audience::kUser}) {
    const auto* const wish = wishes_.Find(audience, session.id(), session.peer().tenant, NowNs());
    if (wish == nullptr) continue;
    const uint64_t others = CountedCommands(audience, {.session = session.id()});
    if (others + records::Profile::CountedCommands(wish->capacity) <=
        records::Profile::MostCommands(audience))
      Drop(session.recorder().Start(audience, wish->capacity, wish->until_ns));
  }
  WantPublishTimes(session);
  sessions_.push_back(&session);
  samples_memory_ |= session.recorder().profiling(Audience::kOperators, NowNs());
  if (!traces_ && IsProfiled()) Settle([] {});
}

void ProfileDesk::Remove(DeviceSession& session) { std::erase(sessions_, &session); }

uint64_t ProfileDesk::CountedCommands(Audience audience, const records::Selection& besides) const {
  uint64_t commands = 0;
  for (DeviceSession* session : sessions_)
    if (!Has(besides, *session)) commands += session->recorder().counted_commands(audience);
  return commands;
}

absl::Status ProfileDesk::Admit(const records::Profiles::Wish& wish) const {
  const uint64_t most = records::Profile::MostCommands(wish.audience);
  const uint64_t others = CountedCommands(wish.audience, wish.selection);
  const uint64_t sessions = ForSelected(wish.selection, [](records::Recorder&) {});
  const uint64_t each = records::Profile::CountedCommands(wish.capacity);
  if (others <= most && std::max<uint64_t>(sessions, 1) * each <= most - others) return absl::OkStatus();
  static constexpr const char* kWho[records::kAudiences] = {"operators", "users", "clients"};
  return absl::ResourceExhaustedError(absl::StrCat(
      "a profile of ", wish.capacity, " commands for ", sessions, sessions == 1 ? " session" : " sessions",
      ", each of which counts as ", each, " with its names; ", others, " of the ", most, " that ",
      kWho[static_cast<size_t>(wish.audience)], " may keep on a device are in use"));
}

absl::StatusOr<size_t> ProfileDesk::Start(const records::Profiles::Wish& wish) {
  RETURN_IF_ERROR(Admit(wish));
  if (wish.audience == Audience::kOperators && !IsProfiledByOperators()) memory_.Clear();
  wishes_.Start(wish);
  const size_t sessions = ForSelected(wish.selection, [&](records::Recorder& recorder) {
    Drop(recorder.Start(wish.audience, wish.capacity, wish.until_ns));
  });
  samples_memory_ |= wish.audience == Audience::kOperators && sessions != 0;
  return sessions;
}

size_t ProfileDesk::Stop(Audience audience, const records::Selection& selection) {
  wishes_.Stop(audience, selection);
  return ForSelected(selection, [&](records::Recorder& recorder) { recorder.Stop(audience); });
}

absl::Status ProfileDesk::StartForClient(uint64_t session, size_t capacity) {
  DeviceSession* const client = Find(session);
  if (client == nullptr) return absl::UnavailableError("the session is being closed");
  RETURN_IF_ERROR(Admit({Audience::kClient, {.session = session}, capacity, UINT64_MAX}));
  Drop(client->recorder().Start(Audience::kClient, capacity));
  return absl::OkStatus();
}

void ProfileDesk::StopForClient(uint64_t session) {
  if (DeviceSession* const client = Find(session)) client->recorder().Stop(Audience::kClient);
}

void ProfileDesk::TakeForClient(uint64_t session, std::function<void(const records::Profile*)> use) {
  DeviceSession* const client = Find(session);
  std::shared_ptr<records::Profile> taken;
  if (client != nullptr) taken = client->recorder().Take(Audience::kClient);
  if (taken != nullptr) {
    const uint64_t kept = taken->records.added() - taken->records.first();
    client->recorder().Sent(kept * sizeof(transport::ProfileRecord) + taken->names.bytes());
  }
  RunAside([taken = std::move(taken), use = std::move(use)]() mutable {
    use(taken.get());
    taken.reset();
  });
}

void ProfileDesk::Drop(std::unique_ptr<records::Profile> profile) {
  if (profile == nullptr) return;
  RunAside([dropped = std::shared_ptr<records::Profile>(std::move(profile))]() mutable { dropped.reset(); });
}

void ProfileDesk::RunAside(std::function<void()> work) {
  aside_->Run(std::move(work), [] {});
}

DeviceSession* ProfileDesk::Find(uint64_t session) const {
  const auto found = std::ranges::find(sessions_, session, &DeviceSession::id);
  return found == sessions_.end() ? nullptr : *found;
}

size_t ProfileDesk::ForSelected(const records::Selection& selection,
                                absl::FunctionRef<void(records::Recorder&)> visit) const {
  size_t count = 0;
  for (DeviceSession* session : sessions_) {
    if (!Has(selection, *session)) continue;
    visit(session->recorder());
    ++count;
  }
  return count;
}

// ---- the device's trace

bool ProfileDesk::IsProfiled() const {
  const uint64_t now = NowNs();
  return std::ranges::any_of(sessions_,
                             [&](DeviceSession* session) { return session->recorder().profiling(now); });
}

void ProfileDesk::Settle(std::function<void()> then) {
  traces_ = IsProfiled();
  for (DeviceSession* session : sessions_) WantPublishTimes(*session);
  settling_.push_back({device_.Trace(traces_), NowNs() + kMaxSettleNs, std::move(then)});
  Poll();
}

void ProfileDesk::Poll() {
  aside_->FinishDone();
  if (traces_ && !IsProfiled()) return Settle([] {});  // a profile's time is over
  if (!traces_ && settling_.empty()) return;
  for (DeviceSession* session : sessions_) session->TakeTimes();
  const uint64_t now = NowNs();
  std::vector<std::function<void()>> finished;
  std::erase_if(settling_, [&](Settling& each) {
    if (!device_.Traced(each.ticket) && now < each.until_ns) return false;
    finished.push_back(std::move(each.then));
    return true;
  });
  for (const auto& then : finished) then();
}

void ProfileDesk::FinishSettling() {
  for (const Settling& each : std::exchange(settling_, {})) each.then();
}

// ---- the device's memory

bool ProfileDesk::IsProfiledByOperators() const {
  const uint64_t now = NowNs();
  return std::ranges::any_of(sessions_, [&](DeviceSession* session) {
    return session->recorder().profiling(Audience::kOperators, now);
  });
}

void ProfileDesk::SampleMemory(uint64_t since_ns, bool closing) {
  const uint64_t began = NowNs();
  if (!samples_memory_ || began < sample_due_ns_) return;
  memory_.Add(since_ns, usage_());
  samples_memory_ = closing || IsProfiledByOperators();
  const uint64_t ended = NowNs();
  sample_due_ns_ =
      ended + std::clamp((kSampleParts - 1) * (ended - began), kSamplePeriodNs, kMaxSamplePeriodNs);
}

}  // namespace xpud::lane
