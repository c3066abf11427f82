#include "daemon/memory/shared_memory.h"

#include <sys/random.h>

#include <utility>

#include "proto/base/check.h"

namespace xpud::memory {
namespace {

template <typename T>
T Random() {
  T value;
  XPUD_CHECK(getrandom(&value, sizeof(value), 0) == static_cast<ssize_t>(sizeof(value)));
  return value;
}

}  // namespace

SharedMemory::~SharedMemory() {
  for (auto ticket = tickets_.begin(); ticket != tickets_.end();) {
    SharedAllocation& allocation = *ticket->second.allocation;
    ticket = Remove(ticket);
    Drop(allocation);
  }
}

void SharedMemory::Count(SharedAllocation& allocation, int references, int tickets) {
  std::map<uint64_t, uint64_t>& by_users = allocation.of->second.by_users;
  if (allocation.references != 0) {
    const auto before = by_users.find(allocation.users());
    XPUD_CHECK(before != by_users.end());
    if (--before->second == 0) by_users.erase(before);
  }
  allocation.references += static_cast<uint64_t>(references);
  allocation.tickets += static_cast<uint64_t>(tickets);
  if (allocation.references != 0) ++by_users[allocation.users()];
}

void SharedMemory::AddTo(DeviceMemory& usage) const {
  for (const auto& [tenant, shares] : tenants_) {
    TenantMemory& memory = usage.tenants[tenant];
    memory.shared = shares.bytes;
    memory.sharers = shares.by_users.rbegin()->first;
  }
}

SharedAllocation& SharedMemory::Share(const Tenant& tenant, const Allocation& own, uint64_t bytes) {
  auto& of = *tenants_.try_emplace(tenant).first;
  TenantShares& memory = of.second;
  Ledger& ledger = pool_.ledger();
  if (memory.account == nullptr) memory.account = &pool_.Open(tenant, &memory.published, &memory.claimed);
  ledger.Move(*own.block.account, *memory.account, own.block.bytes);
  auto* const shared = new SharedAllocation;
  static_cast<Allocation&>(*shared) = own;
  shared->block.account = memory.account;
  shared->is_shared = true;
  shared->listed = false;
  shared->id = Random<uint64_t>();
  shared->bytes = bytes;
  shared->of = &of;
  Refer(*shared);
  ++memory.allocations;
  memory.bytes += own.block.bytes;
  allocations_.insert(shared);
  return *shared;
}

void SharedMemory::Drop(SharedAllocation& allocation) {
  XPUD_CHECK(allocation.references != 0);
  Count(allocation, -1, 0);
  if (allocation.references != 0) return;
  if (allocation.list != nullptr) allocation.list->Unlist(allocation);
  const auto of = tenants_.find(allocation.of->first);
  TenantShares& memory = of->second;
  // The credit goes first, so that it never covers memory that others may get.
  pool_.ledger().TakeCredit(*memory.account, allocation.block.bytes);
  pool_.Free(allocation.block);
  memory.bytes -= allocation.block.bytes;
  allocations_.erase(&allocation);
  delete &allocation;
  if (--memory.allocations != 0) return;
  pool_.Close(*memory.account);
  tenants_.erase(of);
}

SharedMemory::Ticket SharedMemory::Issue(SharedAllocation& allocation, uint64_t session, const Sender& sender,
                                         std::vector<Mark> marks) {
  const auto ticket = Random<Ticket>();
  const bool is_new = tickets_.try_emplace(ticket, Issued{&allocation, session, std::move(marks)}).second;
  XPUD_CHECK(is_new);
  senders_.try_emplace(session, SenderTickets{&sender, {}}).first->second.tickets.insert(ticket);
  ++allocation.of->second.tickets;
  Count(allocation, 1, 1);
  return ticket;
}

const SharedMemory::Issued* SharedMemory::Find(const Ticket& ticket, const Tenant& tenant) const {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end() || found->second.allocation->of->first != tenant) return nullptr;
  return &found->second;
}

bool SharedMemory::IsReady(const Issued& issued) const {
  const auto found = senders_.find(issued.session);
  if (found == senders_.end()) return true;
  for (const Mark& mark : issued.marks) {
    if (!found->second.sender->HasCompleted(mark)) return false;
  }
  return true;
}

std::map<SharedMemory::Ticket, SharedMemory::Issued>::iterator SharedMemory::Remove(
    std::map<Ticket, Issued>::iterator ticket) {
  --ticket->second.allocation->of->second.tickets;
  Count(*ticket->second.allocation, 0, -1);
  if (const auto sender = senders_.find(ticket->second.session); sender != senders_.end())
    sender->second.tickets.erase(ticket->first);
  return tickets_.erase(ticket);
}

SharedAllocation& SharedMemory::Take(const Ticket& ticket) {
  const auto found = tickets_.find(ticket);
  XPUD_CHECK(found != tickets_.end());
  SharedAllocation& allocation = *found->second.allocation;
  Remove(found);
  return allocation;
}

void SharedMemory::SenderEnded(uint64_t session, uint64_t now_ns) {
  const auto found = senders_.find(session);
  if (found == senders_.end()) return;
  for (const Ticket& ticket : found->second.tickets) expiring_.push_back({now_ns + kTicketNs, ticket});
  senders_.erase(found);
}

void SharedMemory::Expire(uint64_t now_ns) {
  for (; !expiring_.empty() && expiring_.front().at_ns <= now_ns; expiring_.pop_front()) {
    const auto found = tickets_.find(expiring_.front().ticket);
    if (found == tickets_.end()) continue;  // it was taken
    SharedAllocation& allocation = *found->second.allocation;
    Remove(found);
    Drop(allocation);
  }
}

void SharedMemory::Revoke(const Tenant& tenant) {
  for (auto ticket = tickets_.begin(); ticket != tickets_.end();) {
    SharedAllocation& allocation = *ticket->second.allocation;
    if (allocation.of->first != tenant) {
      ++ticket;
      continue;
    }
    ticket = Remove(ticket);
    Drop(allocation);
  }
}

}  // namespace xpud::memory
