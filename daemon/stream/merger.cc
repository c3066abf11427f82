#include "daemon/stream/merger.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "daemon/memory/arena.h"
#include "daemon/memory/residency.h"
#include "daemon/stream/memory.h"
#include "proto/base/check.h"

namespace xpud::stream {
namespace {

using handles::Buffer;
using memory::Block;
using memory::Pool;

constexpr uint64_t kMillisecond = 1'000'000, kSecond = 1'000'000'000;
constexpr uint64_t kNever = UINT64_MAX;
constexpr uint64_t kRetryNs = kMillisecond;         // after the device could not take a piece
constexpr uint64_t kPatienceNs = kSecond / 10;      // before a lane that sleeps tries again
constexpr uint64_t kUploadsNs = kMillisecond / 50;  // between two looks for uploads that are complete
constexpr uint64_t kLookNs = 5 * kMillisecond;      // between two looks at some buffers
constexpr uint32_t kBuffersPerLook = 256;           // of one session: some 10 us
constexpr uint64_t kQuietNs = kSecond;              // without a merge for so long: memory goes to the device

// Depends on the order of the pieces. Not secret: the pieces' digests have a key.
uint64_t Mix(uint64_t so_far, uint64_t piece) { return (std::rotl(so_far, 23) ^ piece) * 0x9e3779b97f4a7c15; }

}  // namespace

// What is kept for a tenant with sessions, or with a job.
struct Merger::OfTenant {
  Tenant tenant;
  memory::Ledger::Account* account = nullptr;  // has nothing; the tenant's arena stays while it is open
  uint64_t users = 0;
  uint64_t trim_at_ns = kNever;
  // The account's words; no client reads or writes them.
  std::atomic<uint64_t> published{0}, claimed{0};
};

Merger::Merger(Pool& pool, std::unique_ptr<Comparer> comparer, OnTrouble on_trouble, size_t max_known)
    : pool_(pool),
      comparer_(std::move(comparer)),
      on_trouble_(std::move(on_trouble)),
      max_known_(max_known) {}

Merger::~Merger() {
  comparer_->Reset();  // the device does nothing more for it
  if (job_) EndJob();
  XPUD_CHECK(tenants_.empty());
}

void Merger::Add(uint64_t id, const Tenant& tenant, Participant& session) {
  std::unique_ptr<OfTenant>& of = tenants_[tenant];
  if (of == nullptr) {
    of = std::make_unique<OfTenant>();
    of->tenant = tenant;
    of->account = &pool_.Open(tenant, &of->published, &of->claimed);
    of->account->arena->AddUser(*this);
  }
  ++of->users;
  members_[id] = {&session, of.get()};
}

void Merger::Remove(uint64_t id) {
  const auto member = members_.find(id);
  if (member == members_.end()) return;
  for (auto known = known_.lower_bound({id, 0}); known != known_.end() && known->first.first == id;)
    Forget(known++);
  uploads_ -= member->second.session->memory().uploads().size();
  OfTenant& tenant = *member->second.tenant;
  members_.erase(member);
  EndOutdatedJob();
  Release(tenant);
}

void Merger::Abandon(const absl::Status& trouble) {
  if (losses_ == kMaxLosses) return;
  comparer_->Reset();  // first: what the device still reads must be there until then
  if (job_) EndJob();
  is_off_ |= ++losses_ == kMaxLosses;
  rests_until_ns_ = polled_ns_ + kRestNs;
  is_warm_ = false;
  on_trouble_(trouble, /*goes_on=*/!is_off_);
}

void Merger::Release(OfTenant& tenant) {
  if (--tenant.users != 0) return;
  tenant.account->arena->RemoveUser(*this);
  pool_.Close(*tenant.account);
  tenants_.erase(tenants_.find(tenant.tenant));
}

uint64_t Merger::due_ns(uint64_t now_ns) const {
  if (is_off_) return trim_at_ns_;
  uint64_t due = kNever;
  const uint64_t starts_ns = now_ns + (time_ns_ > 0 ? 0 : static_cast<uint64_t>(1 - time_ns_));
  // What it could not do at the last look, nothing that happens without waking the lane makes possible.
  const uint64_t patience_ns = is_blocked_ ? kPatienceNs : 0;
  if (job_ || uploads_ != 0) due = std::min(due, std::max(starts_ns, retry_ns_ + patience_ns));
  if (looking_at_) due = std::min(due, std::max(starts_ns, looked_ns_ + kLookNs));
  if (!noted_.empty()) due = std::min(due, noted_.front().ns + kIdleNs);
  if (has_new_contents_) due = std::min(due, (noted_.empty() ? polled_ns_ : noted_.back().ns) + kSecond);
  return std::min(trim_at_ns_, std::max(due, rests_until_ns_));
}

void Merger::Poll(uint64_t now_ns, uint64_t last_content, absl::FunctionRef<bool()> may_start) {
  if (polled_ns_ != 0)
    time_ns_ = std::min<int64_t>(time_ns_ + static_cast<int64_t>(now_ns - polled_ns_),
                                 static_cast<int64_t>(kMaxSavedNs * kPart));
  else
    time_ns_ = static_cast<int64_t>(kMaxSavedNs * kPart);
  polled_ns_ = now_ns;
  Trim(now_ns);
  if (is_under_way() && !TakeResult(now_ns)) return;
  EndOutdatedJob();
  if (is_off_ && job_) EndJob();
  if (is_off_ || now_ns < rests_until_ns_) return;
  if (!is_warm_ && !members_.empty()) {
    is_warm_ = true;
    comparer_->WarmUp();
  }
  NoteContents(now_ns, last_content);
  if (time_ns_ <= 0 || now_ns < retry_ns_) return;
  is_blocked_ = false;
  if (!job_ && !FindJob(now_ns)) {
    is_blocked_ = uploads_ != 0;
    if (is_blocked_) retry_ns_ = now_ns + kUploadsNs;
    return;
  }
  if (may_start()) return StartPiece();
  is_blocked_ = true;
  retry_ns_ = now_ns + kRetryNs;
}

// ---- what to look at

bool Merger::IsCandidate(Participant& session, const Buffer& buffer) {
  return buffer.bytes >= Pool::kMinMergedBytes && buffer.bytes % sizeof(uint64_t) == 0 &&
         !buffer.own.is_merged && !session.is_stopped() && session.memory().IsSettled(buffer);
}

bool Merger::IsKnown(const Subject& subject) const {
  const auto known = known_.find(subject.id());
  return known != known_.end() && known->second.handle.generation == subject.handle.generation &&
         known->second.content == subject.content;
}

Buffer* Merger::Find(const Subject& subject) const {
  const auto member = members_.find(subject.session);
  if (member == members_.end() || member->second.session->is_stopped()) return nullptr;
  Buffer* const buffer = member->second.session->buffers().Find(subject.handle);
  const bool has_it = buffer != nullptr && !buffer->own.is_shared && buffer->own.content == subject.content &&
                      member->second.session->memory().IsSettled(*buffer);
  return has_it ? buffer : nullptr;
}

bool Merger::FindJob(uint64_t now_ns) { return FindUploaded() || FindIdle(now_ns); }

// Sessions take turns. An upload that is not complete is looked at later; those after it are not complete
// either.
bool Merger::FindUploaded() {
  if (uploads_ == 0) return false;
  auto member = members_.upper_bound(last_session_);
  for (size_t left = members_.size(); left > 0; --left, ++member) {
    if (member == members_.end()) member = members_.begin();
    Participant& session = *member->second.session;
    std::deque<wire::Handle>& uploads = session.memory().uploads();
    while (!uploads.empty()) {
      const wire::Handle handle = uploads.front();
      Buffer* const buffer = session.buffers().Find(handle);
      if (buffer != nullptr && !buffer->own.is_shared && session.memory().IsBeingWritten(*buffer)) break;
      if (session.is_stopped()) break;
      uploads.pop_front();
      --uploads_;
      if (buffer == nullptr || !IsCandidate(session, *buffer) ||
          IsKnown({member->first, handle, buffer->own.content}))
        continue;
      last_session_ = member->first;
      Begin(member->first, handle, *buffer);
      return true;
    }
  }
  return false;
}

void Merger::NoteContents(uint64_t now_ns, uint64_t last_content) {
  const uint64_t noted = noted_.empty() ? noted_content_ : noted_.back().content;
  has_new_contents_ = last_content != noted;
  if (has_new_contents_ && (noted_.empty() || now_ns - noted_.back().ns >= kSecond)) {
    noted_.push_back({now_ns, last_content});
    has_new_contents_ = false;
  }
  while (!looking_at_ && !noted_.empty() && now_ns - noted_.front().ns >= kIdleNs) {
    noted_content_ = noted_.front().content;
    noted_.pop_front();
    if (!noted_.empty() && now_ns - noted_.front().ns >= kIdleNs) continue;
    looking_at_ = noted_content_;
    next_idle_ = {0, 1};
  }
}

// Looks at some buffers of the next session for contents of which nobody has looked for yet, and that are old
// by now.
bool Merger::FindIdle(uint64_t now_ns) {
  if (!looking_at_ || now_ns - looked_ns_ < kLookNs) return false;
  looked_ns_ = now_ns;
  const auto member = members_.lower_bound(next_idle_.first);
  if (member == members_.end()) {
    looked_at_ = *std::exchange(looking_at_, std::nullopt);
    return false;
  }
  if (member->first != next_idle_.first) next_idle_ = {member->first, 1};
  Participant& session = *member->second.session;
  const uint32_t end = next_idle_.second + kBuffersPerLook;
  for (uint32_t& id = next_idle_.second; id < end; ++id) {
    Buffer* const buffer = session.buffers().Slot(id);
    if (buffer == nullptr) {
      next_idle_ = {member->first + 1, 1};
      return false;
    }
    const uint64_t content = buffer->own.content;
    if (buffer->generation == 0 || buffer->bytes < Pool::kMinMergedBytes || content <= looked_at_ ||
        content > *looking_at_ || !IsCandidate(session, *buffer))
      continue;
    const wire::Handle handle = {id, buffer->generation};
    if (IsKnown({member->first, handle, content})) continue;
    Begin(member->first, handle, *buffer);
    ++id;
    looked_ns_ = 0;  // goes on at once after that
    return true;
  }
  return false;
}

// ---- looking at it

void Merger::Begin(uint64_t session, wire::Handle handle, const Buffer& buffer) {
  OfTenant& tenant = *members_.at(session).tenant;
  ++tenant.users;
  job_.emplace();
  job_->subject = {session, handle, buffer.own.content};
  job_->tenant = &tenant;
  job_->bytes = buffer.bytes;
}

void Merger::Unpin(Job& job) {
  for (const Block& block : job.read) pool_.Unpin(block);
  job.read.clear();
}

void Merger::EndJob() {
  Unpin(*job_);
  OfTenant& tenant = *job_->tenant;
  job_.reset();
  Release(tenant);
}

// What was written meanwhile is something else.
void Merger::EndOutdatedJob() {
  if (job_ && !job_->in_flight && Find(job_->subject) == nullptr) EndJob();
}

// REQUIRES: the subject is as it was.
void Merger::StartPiece() {
  if (job_->other && Find(*job_->other) == nullptr) {
    CompareNext();
    if (!job_) return;
  }
  Job& job = *job_;
  std::vector<Block> read;
  std::vector<const std::byte*> addresses;
  for (const Buffer* const buffer : {Find(job.subject), job.other ? Find(*job.other) : nullptr}) {
    if (buffer == nullptr) continue;
    // With the tenant's own account: the session's may end meanwhile.
    read.push_back({buffer->own.block.address, buffer->own.block.bytes, job.tenant->account, {}});
    addresses.push_back(buffer->own.block.address);
  }
  memory::Arena& arena = *job.tenant->account->arena;
  if (arena.is_watched() && !memory::Residency::HoldIfThere(arena, *this, {0, sequence_ + 1}, addresses))
    return EndJob();
  job.piece = std::min(job.bytes - job.done, comparer_->piece_bytes());
  const absl::StatusOr<bool> started =
      job.other ? comparer_->StartCompare(addresses[0] + job.done, addresses[1] + job.done, job.piece)
                : comparer_->StartDigest(addresses[0] + job.done, job.piece);
  if (!started.ok()) return Abandon(started.status());
  if (!*started) {
    retry_ns_ = polled_ns_ + kRetryNs;
    return;
  }
  for (const Block& block : read) pool_.Pin(block);
  job.read = std::move(read);
  ++sequence_;
  job.in_flight = true;
}

bool Merger::TakeResult(uint64_t now_ns) {
  const absl::StatusOr<std::optional<Comparer::Result>> result = comparer_->Poll();
  if (result.ok() && !*result) return false;
  Job& job = *job_;
  job.in_flight = false;
  Unpin(job);
  if (!result.ok()) {
    Abandon(result.status());
    return true;
  }
  losses_ = 0;
  const Comparer::Words& words = (*result)->words;
  time_ns_ -= static_cast<int64_t>((*result)->took_ns * kPart);
  used_ns_ += (*result)->took_ns;
  read_bytes_ += job.piece * (job.other ? 2 : 1);
  job.done += job.piece;
  if (job.other) {
    if (words[0] != 0) {
      CompareNext();
    } else if (job.done == job.bytes) {
      Merge(now_ns);
    }
    return true;
  }
  for (size_t i = 0; i < words.size(); ++i) job.digest[i] = Mix(job.digest[i], words[i]);
  if (job.done == job.bytes) DigestIsKnown();
  return true;
}

void Merger::DigestIsKnown() {
  Job& job = *job_;
  if (Find(job.subject) == nullptr) return EndJob();
  if (const auto earlier = known_.find(job.subject.id()); earlier != known_.end()) Forget(earlier);
  if (known_.size() >= max_known_) ForgetOutdated();
  const auto equals = by_digest_.try_emplace({job.tenant->tenant, job.bytes, job.digest}).first;
  job.equals = equals->second;
  if (known_.size() < max_known_) {
    equals->second.push_back(job.subject.id());
    known_[job.subject.id()] = {job.subject.handle, job.subject.content, equals};
  } else if (equals->second.empty()) {
    by_digest_.erase(equals);
  }
  std::ranges::reverse(job.equals);  // the first ones are taken from the back
  CompareNext();
}

void Merger::CompareNext() {
  Job& job = *job_;
  const Buffer* const subject = Find(job.subject);
  while (subject != nullptr && !job.equals.empty() && job.comparisons < kMaxComparisons) {
    const auto known = known_.find(job.equals.back());
    job.equals.pop_back();
    if (known == known_.end()) continue;
    const Subject next = {known->first.first, known->second.handle, known->second.content};
    const Buffer* const other = Find(next);
    if (other == nullptr || other->own.block.address == subject->own.block.address) continue;
    ++job.comparisons;
    job.other = next;
    job.done = 0;
    return;
  }
  EndJob();
}

void Merger::Merge(uint64_t now_ns) {
  const Job& job = *job_;
  Buffer *const buffer = Find(job.subject), *const kept = Find(*job.other);
  if (buffer != nullptr && kept != nullptr && !buffer->own.is_merged) {
    const Block former = pool_.Merge(kept->own.block, buffer->own.block);
    members_.at(job.other->session).session->memory().Merged(*kept, std::nullopt);
    members_.at(job.subject.session).session->memory().Merged(*buffer, former);
    job.tenant->trim_at_ns = now_ns + kQuietNs;
    trim_at_ns_ = std::min(trim_at_ns_, job.tenant->trim_at_ns);
  }
  EndJob();
}

// ---- what is known

void Merger::Forget(std::map<Id, Known>::iterator known) {
  const auto equals = known->second.equals;
  std::erase(equals->second, known->first);
  if (equals->second.empty()) by_digest_.erase(equals);
  known_.erase(known);
}

void Merger::ForgetOutdated() {
  for (auto known = known_.begin(); known != known_.end();) {
    const auto each = known++;
    if (Find({each->first.first, each->second.handle, each->second.content}) == nullptr) Forget(each);
  }
}

// Not earlier: programs that load a model soon need what others have given back.
void Merger::Trim(uint64_t now_ns) {
  if (now_ns < trim_at_ns_) return;
  trim_at_ns_ = kNever;
  for (const auto& [tenant, of] : tenants_) {
    if (now_ns >= of->trim_at_ns) {
      of->trim_at_ns = kNever;
      pool_.Trim(tenant);
    }
    trim_at_ns_ = std::min(trim_at_ns_, of->trim_at_ns);
  }
}

}  // namespace xpud::stream
