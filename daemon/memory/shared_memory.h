// Memory that several buffers of a tenant's sessions name, and the tickets that pass it on. A session shares
// a buffer: its block becomes a *shared allocation*, and a *ticket* names it to one other buffer of the same
// tenant on the same device. The allocation ends with its last reference: a buffer, a free that waits for the
// device, or a ticket. A ticket ends when it is taken, or kTicketNs after the session that asked for it.
//
// The tenant has one account for all of it (Ledger), so shared memory counts for its quota and guarantee
// once, however many sessions have it. REQUIRES: the lane's thread.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "daemon/memory/allocation.h"
#include "daemon/memory/ledger.h"
#include "daemon/memory/pool.h"
#include "daemon/memory/usage.h"
#include "daemon/memory/user.h"
#include "daemon/tenant/tenant.h"

namespace xpud::memory {

struct SharedAllocation;

// Where a session lists shared memory whose poison ends with the report of its error.
class PoisonList {
 public:
  // The memory ends, or another session has poisoned it.
  virtual void Unlist(SharedAllocation& allocation) = 0;

 protected:
  ~PoisonList() = default;
};

// What all sessions of one tenant share on this device.
struct TenantShares {
  Ledger::Account* account = nullptr;
  uint64_t allocations = 0;
  uint64_t bytes = 0;  // of the allocations' blocks
  uint64_t tickets = 0;
  std::map<uint64_t, uint64_t> by_users;  // how many of the allocations have so many users
  // The account's words; no client reads or writes them.
  std::atomic<uint64_t> published{0}, claimed{0};
};

// Poison in shared memory crosses sessions: a session that reads it raises an error of its own, with this
// one's text.
struct SharedAllocation : Allocation {
  uint64_t id = 0;     // random; so that clients see that two tickets name the same memory
  uint64_t bytes = 0;  // as the client that allocated it asked for
  uint64_t references = 0;
  uint64_t tickets = 0;  // of these
  std::map<Tenant, TenantShares>::value_type* of = nullptr;
  uint64_t poisoned_by = 0;    // the session whose errors `cause` numbers
  absl::Status error;          // of that cause
  PoisonList* list = nullptr;  // while `listed`

  // Buffers, those included whose free is under way.
  uint64_t users() const { return references - tickets; }
};

class SharedMemory {
 public:
  static constexpr uint64_t kMaxTickets = 4096;  // of a tenant
  static constexpr uint64_t kTicketNs = 60'000'000'000;

  using Ticket = std::array<uint64_t, 2>;  // random
  using Mark = memory::Mark;               // commands of a session that used the memory before it was shared
  // A session that shares. It outlives its tickets' marks: see SenderEnded.
  class Sender {
   public:
    virtual bool HasCompleted(const Mark& mark) const = 0;

   protected:
    ~Sender() = default;
  };

  explicit SharedMemory(Pool& pool) : pool_(pool) {}
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Makes memory of `tenant` shared; `own` has a block. Moves the block's charge, held and credit, from the
  // account of its session to the tenant's. The caller has its first reference.
  SharedAllocation& Share(const Tenant& tenant, const Allocation& own, uint64_t bytes);
  static void Refer(SharedAllocation& allocation) { Count(allocation, 1, 0); }
  // Gives a reference back. The last one frees the memory. REQUIRES: no queue uses it for that reference.
  void Drop(SharedAllocation& allocation);

  // Whether the tenant has fewer than kMaxTickets.
  bool MayIssue(const Tenant& tenant) const {
    const auto of = tenants_.find(tenant);
    return of == tenants_.end() || of->second.tickets < kMaxTickets;
  }
  // Makes a ticket. REQUIRES: MayIssue. `marks`: see Mark.
  Ticket Issue(SharedAllocation& allocation, uint64_t session, const Sender& sender, std::vector<Mark> marks);
  struct Issued {
    SharedAllocation* allocation;
    uint64_t session;  // that asked for it
    std::vector<Mark> marks;
  };
  // Returns nullptr for a ticket that is unknown, was taken, has ended or is of another tenant.
  const Issued* Find(const Ticket& ticket, const Tenant& tenant) const;
  // Whether what its sender had put into queues before is complete. What has ended is.
  bool IsReady(const Issued& issued) const;
  // Ends the ticket. Returns its memory; the caller has its reference. REQUIRES: Find has found it.
  SharedAllocation& Take(const Ticket& ticket);

  // The session ends: the device does nothing more for it. Its tickets end kTicketNs later.
  void SenderEnded(uint64_t session, uint64_t now_ns);
  // Ends tickets whose time is over.
  void Expire(uint64_t now_ns);
  // When Expire has to be called next; UINT64_MAX: not known.
  uint64_t due_ns() const { return expiring_.empty() ? UINT64_MAX : expiring_.front().at_ns; }
  // Ends all tickets of a tenant, which has no session any more and gets none.
  void Revoke(const Tenant& tenant);

  void ForEach(absl::FunctionRef<void(SharedAllocation&)> visit) const {
    for (SharedAllocation* const each : allocations_) visit(*each);
  }
  const std::map<Tenant, TenantShares>& tenants() const { return tenants_; }
  // Sets what the tenants share.
  void AddTo(DeviceMemory& usage) const;

 private:
  struct SenderTickets {
    const Sender* sender;
    std::set<Ticket> tickets;
  };
  struct Expiring {
    uint64_t at_ns;
    Ticket ticket;
  };

  // Changes the counts of an allocation's references and, of these, tickets.
  static void Count(SharedAllocation& allocation, int references, int tickets);
  std::map<Ticket, Issued>::iterator Remove(std::map<Ticket, Issued>::iterator ticket);

  Pool& pool_;
  std::map<Tenant, TenantShares> tenants_;  // those that share
  absl::flat_hash_set<SharedAllocation*> allocations_;
  std::map<Ticket, Issued> tickets_;
  std::map<uint64_t, SenderTickets> senders_;  // by session; those that are open and have asked for tickets
  std::deque<Expiring> expiring_;              // of senders that have ended, by time
};

}  // namespace xpud::memory
