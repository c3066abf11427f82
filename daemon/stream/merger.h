// Finds buffers of a tenant that have equal contents, and gives them one block (memory::Pool::Merge), which
// is copied before one of them is written (Memory::TakeOwn). What was uploaded is looked at at once, what
// nobody has written for kIdleNs later. The device computes digests of contents, and compares those with
// equal digests byte for byte: digests only say what is worth a comparison. Nothing waits for any of that: if
// a buffer is written meanwhile, its content has another number, and the result is dropped. Uses at most one
// hundredth of the device's time, in the long run. REQUIRES: the lane's thread.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/handles/buffer_table.h"
#include "daemon/memory/pool.h"
#include "daemon/memory/usage.h"
#include "daemon/memory/user.h"
#include "daemon/stream/comparer.h"
#include "daemon/tenant/tenant.h"
#include "proto/wire/commands.h"

namespace xpud::stream {

class Memory;

class Merger final : memory::User {
 public:
  static constexpr uint64_t kIdleNs = 10'000'000'000;
  static constexpr uint64_t kPart = 100;                // one of so many parts of the device's time
  static constexpr uint64_t kMaxSavedNs = 100'000'000;  // of this time, while there is nothing to do
  static constexpr int kMaxComparisons = 4;   // of a buffer's contents, however many digests are equal
  static constexpr size_t kMaxKnown = 16384;  // buffers whose digests are kept
  static constexpr uint64_t kRestNs = 60'000'000'000;  // after work of the device that was lost
  static constexpr int kMaxLosses = 3;                 // in a row

  // A session's part on the device.
  class Participant {
   public:
    virtual Memory& memory() = 0;
    virtual handles::BufferTable& buffers() = 0;
    // Whether an op was stopped in the middle: it writes buffers that do not say so yet.
    virtual bool is_stopped() const = 0;

   protected:
    ~Participant() = default;
  };

  // The device could not compare. `goes_on`: it is tried again, after kRestNs.
  using OnTrouble = std::function<void(const absl::Status& trouble, bool goes_on)>;
  // `max_known`: see kMaxKnown.
  Merger(
      memory::Pool& pool, std::unique_ptr<Comparer> comparer,
      OnTrouble on_trouble = [](const absl::Status&, bool) {}, size_t max_known = kMaxKnown);
  // REQUIRES: nothing is under way, or the device does nothing more.
  ~Merger();
  Merger(const Merger&) = delete;
  Merger& operator=(const Merger&) = delete;

  // Of the tenant's sessions, by id; until Remove, which is called before the session's memory ends.
  void Add(uint64_t id, const Tenant& tenant, Participant& session);
  void Remove(uint64_t id);

  // A session has one more upload to look at: see Memory::uploads.
  void AddUpload() { ++uploads_; }

  // Goes on. `last_content`: of the last write on the device; see memory::Allocation. `may_start`: whether
  // the device has the time; asked before it gets work.
  void Poll(uint64_t now_ns, uint64_t last_content, absl::FunctionRef<bool()> may_start);
  // Whether the device works for it. Nothing wakes the lane then: call Poll often.
  bool is_under_way() const { return job_.has_value() && job_->in_flight; }
  // When Poll has something to do next, if nothing else happens; UINT64_MAX: never.
  uint64_t due_ns(uint64_t now_ns) const;
  // For operators.
  void AddTo(memory::DeviceMemory& usage) const {
    usage.merging_ns = used_ns_;
    usage.merging_bytes = read_bytes_;
  }
  // Starts nothing more.
  void End() { is_off_ = true; }
  // What is under way is lost: the device does nothing more for the Merger. After kMaxLosses losses, nothing
  // is merged any more.
  void Abandon(const absl::Status& trouble);

 private:
  using Id = std::pair<uint64_t, uint32_t>;  // session, buffer
  struct OfTenant;
  struct Member {
    Participant* session;
    OfTenant* tenant;
  };
  struct Key {
    Tenant tenant;
    uint64_t bytes = 0;
    Comparer::Words digest{};
    auto operator<=>(const Key&) const = default;
  };
  // A buffer with contents.
  struct Subject {
    uint64_t session = 0;
    wire::Handle handle;
    uint64_t content = 0;
    Id id() const { return {session, handle.id}; }
  };
  struct Known {
    wire::Handle handle;
    uint64_t content = 0;
    std::map<Key, std::vector<Id>>::iterator equals;
  };
  // Contents being looked at.
  struct Job {
    Subject subject;
    std::optional<Subject> other;  // what it is compared with
    OfTenant* tenant = nullptr;
    bool in_flight = false;
    // What the device reads now. It stays until that is done, whatever becomes of the buffers.
    std::vector<memory::Block> read;
    uint64_t bytes = 0, done = 0, piece = 0;
    Comparer::Words digest{};
    std::vector<Id> equals;  // with equal digests, to be compared
    int comparisons = 0;
  };

  // For Residency.
  bool HasCompleted(const memory::Mark& mark) const override {
    return !is_under_way() || mark.sequence != sequence_;
  }
  std::vector<memory::Mark> Unfinished() override {
    if (!is_under_way()) return {};
    return {{0, sequence_}};
  }
  bool IsAtWork() const override { return false; }

  void Release(OfTenant& tenant);
  // Returns the buffer if it has these contents, and they are complete.
  handles::Buffer* Find(const Subject& subject) const;
  static bool IsCandidate(Participant& session, const handles::Buffer& buffer);
  bool IsKnown(const Subject& subject) const;
  // Finds something to look at. Returns whether there is a job now.
  bool FindJob(uint64_t now_ns);
  bool FindUploaded();
  bool FindIdle(uint64_t now_ns);
  void NoteContents(uint64_t now_ns, uint64_t last_content);
  void Begin(uint64_t session, wire::Handle handle, const handles::Buffer& buffer);
  // Starts the next piece of the job.
  void StartPiece();
  // Takes the result of a piece. Returns false while the device works.
  bool TakeResult(uint64_t now_ns);
  void DigestIsKnown();
  // Goes on with the next buffer of an equal digest. Ends the job if there is none.
  void CompareNext();
  void Merge(uint64_t now_ns);
  void Unpin(Job& job);
  void EndJob();
  void EndOutdatedJob();
  void Forget(std::map<Id, Known>::iterator known);
  void ForgetOutdated();
  void Trim(uint64_t now_ns);

  memory::Pool& pool_;
  const std::unique_ptr<Comparer> comparer_;
  const OnTrouble on_trouble_;
  const size_t max_known_;
  std::map<Tenant, std::unique_ptr<OfTenant>> tenants_;
  std::map<uint64_t, Member> members_;  // by session
  std::map<Id, Known> known_;
  std::map<Key, std::vector<Id>> by_digest_;
  std::optional<Job> job_;
  uint64_t sequence_ = 0;  // of the last piece
  bool is_off_ = false, is_warm_ = false;
  uint64_t rests_until_ns_ = 0;  // after a loss
  int losses_ = 0;
  int64_t time_ns_ = 0;  // of the clock, of which it may use a part
  uint64_t used_ns_ = 0, read_bytes_ = 0;
  uint64_t polled_ns_ = 0;
  uint64_t retry_ns_ = 0;
  uint64_t trim_at_ns_ = UINT64_MAX;  // the first of the tenants'
  size_t uploads_ = 0;                // of all sessions, to look at
  bool is_blocked_ = false;           // by commands, or by uploads that are not complete
  uint64_t last_session_ = 0;         // whose uploads were looked at last

  // Looking for what nobody has written for a while. A buffer's content says when it was written.
  struct Noted {
    uint64_t ns, content;
  };
  std::deque<Noted> noted_;     // how far contents were, at times
  uint64_t noted_content_ = 0;  // before those
  bool has_new_contents_ = false;
  uint64_t looked_at_ = 0;              // contents up to this one
  std::optional<uint64_t> looking_at_;  // while it looks for contents up to this one
  Id next_idle_{0, 1};
  uint64_t looked_ns_ = 0;
};

}  // namespace xpud::stream
