#include "kernels/compiler/kernel_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace xpud::kernels {
namespace {

// So many a tenant may have in any case: all kernels of one call are needed at a time, and are up to half.
constexpr size_t kMinOfTenant = 256;

uint64_t HashOf(const KernelKey& key) {
  const auto& w = key.words;
  uint64_t h = w[0] ^ w[1] * 0x9E3779B97F4A7C15u ^ w[2] * 0xC2B2AE3D27D4EB4Fu ^ w[3] * 0x165667B19E3779F9u;
  h *= 0xD6E8FEB86659FD93u;
  return h ^ h >> 32;
}

}  // namespace

KernelCache::KernelCache(std::shared_ptr<KernelCompiler> compiler, std::function<void()> on_ready,
                         KernelCompiler::Assembler assemble, size_t most, ForgetKernels forget)
    : target_(compiler->target()),
      forget_(std::move(forget)),
      table_(1024),
      most_(std::max<size_t>(most, 1)),
      client_(std::move(compiler), std::move(on_ready), std::move(assemble)) {}

KernelCache::~KernelCache() {
  for (const auto& entry : entries_) Drop(*entry);
  for (const auto& entry : leaving_) Drop(*entry);
}

KernelCache::Entry* KernelCache::Lookup(const KernelKey& key) const {
  const size_t mask = table_.size() - 1;
  for (size_t at = HashOf(key) & mask; table_[at] != nullptr; at = (at + 1) & mask) {
    if (table_[at]->key == key) return table_[at];
  }
  return nullptr;
}

void KernelCache::Insert(Entry* entry) {
  const size_t mask = table_.size() - 1;
  size_t at = HashOf(entry->key) & mask;
  while (table_[at] != nullptr) at = (at + 1) & mask;
  table_[at] = entry;
}

absl::StatusOr<const Kernel*> KernelCache::Find(const Skeleton& skeleton, const KernelKey& key) {
  if (Entry* const entry = Lookup(key); entry != nullptr) [[likely]] {
    entry->used = ++uses_;
    entry->shared |= entry->tenant != tenant_;
    if (entry->kernel != nullptr) [[likely]] {
      ++memory_hits_;
      return entry->kernel;
    }
    absl::StatusOr<const Kernel*> settled = Settle(*entry);
    // Who waited has ended, or a process was ended from outside: the next one has it made again.
    const bool cancelled = absl::IsCancelled(settled.status());
    if (cancelled || absl::IsAborted(settled.status())) Erase(*entry);
    if (!cancelled) return settled;
  }
  MakeRoom(skeleton.Keep(key) != nullptr);
  return Settle(AddEntryFor(skeleton, key));
}

// Returns what Find returns, and gives the kernel an index once its code is ready.
absl::StatusOr<const Kernel*> KernelCache::Settle(Entry& entry) {
  switch (entry.code->state()) {
    case Code::State::kPending:
      if (owner_ != nullptr && entry.kept != nullptr) client_.Join(*entry.code, *owner_);
      return nullptr;
    case Code::State::kFailed:
      return entry.code->failure();
    case Code::State::kReady:
      break;
  }
  std::vector<ArgType> arguments = entry.skeleton->ArgumentsOf(entry.key);
  const Signature signature = SignatureOf(arguments);
  entry.made = {TakeIndex(), &entry.code->image(), entry.skeleton->NameOf(entry.key), std::move(arguments),
                signature};
  entry.kernel = &entry.made;
  ++memory_hits_;
  return entry.kernel;
}

void KernelCache::SetLimits(size_t most, uint64_t disk_bytes) {
  most_ = std::max<size_t>(most, 1);
  client_.compiler().SetDiskLimit(disk_bytes);
}

KernelCache::Entry& KernelCache::AddEntryFor(const Skeleton& skeleton, const KernelKey& key) {
  Entry& entry = *entries_.emplace_back(std::make_unique<Entry>());
  entry.key = key;
  entry.skeleton = &skeleton;
  entry.used = ++uses_;
  entry.kept = skeleton.Keep(key);
  entry.tenant = entry.kept != nullptr ? tenant_ : 0;
  entry.code = client_.Find(skeleton, key, owner_);
  if (entries_.size() * 2 > table_.size()) {
    table_.assign(table_.size() * 2, nullptr);
    for (const auto& known : entries_) Insert(known.get());
  } else {
    Insert(&entry);
  }
  return entry;
}

// An eighth at a time, so that the search is seldom.
void KernelCache::MakeRoom(bool of_client) {
  if (of_client) {
    const auto is_own = [this](const auto& entry) { return IsOfTenantAlone(*entry); };
    const size_t most = std::max(most_ / 2, std::min(most_, kMinOfTenant));
    const auto own = static_cast<size_t>(std::count_if(entries_.begin(), entries_.end(), is_own));
    if (own >= most) GiveUp(most - most / 8 - 1, is_own);
  }
  if (entries_.size() >= most_) GiveUp(most_ - most_ / 8 - 1, [](const auto&) { return true; });
  if (!leaving_.empty()) ForgetLeaving();
}

template <typename Counts>
void KernelCache::GiveUp(size_t kept, const Counts& counts) {
  const auto first = std::partition(entries_.begin(), entries_.end(), [&](const auto& entry) {
    return !counts(entry) || entry->code->state() == Code::State::kPending;
  });
  const auto end = first + std::min(entries_.end() - first, static_cast<ptrdiff_t>(kept));
  std::nth_element(first, end, entries_.end(),
                   [](const auto& a, const auto& b) { return a->used > b->used; });
  std::move(end, entries_.end(), std::back_inserter(leaving_));
  entries_.erase(end, entries_.end());
  FillTable();
}

void KernelCache::FillTable() {
  table_.assign(table_.size(), nullptr);
  for (const auto& entry : entries_) Insert(entry.get());
}

void KernelCache::Erase(const Entry& entry) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& known) { return known.get() == &entry; });
  Drop(**found);
  entries_.erase(found);
  FillTable();
}

void KernelCache::ForgetLeaving() {
  std::vector<const Kernel*> needed;
  for (const auto& entry : leaving_) {
    if (entry->kernel != nullptr) needed.push_back(entry->kernel);
  }
  if (forget_) {
    forget_(needed);
  } else {
    needed.clear();
  }
  std::erase_if(leaving_, [&](const auto& entry) {
    if (std::find(needed.begin(), needed.end(), entry->kernel) != needed.end()) return false;
    if (entry->kernel != nullptr) free_indices_.push_back(entry->kernel->index);
    Drop(*entry);
    return true;
  });
}

void KernelCache::Drop(Entry& entry) {
  if (entry.code != nullptr) client_.Drop(std::move(entry.code));
}

uint32_t KernelCache::TakeIndex() {
  if (free_indices_.empty()) return indices_++;
  const uint32_t index = free_indices_.back();
  free_indices_.pop_back();
  return index;
}

KernelCounters KernelCache::counters() const {
  KernelCounters counters = client_.counters();
  counters.memory_hits = memory_hits_;
  return counters;
}

void KernelCache::WaitForCompiles() { client_.WaitForCompiles(); }

const Kernel* KernelCache::Add(std::shared_ptr<const ModuleImage> image, std::string entry) {
  modules_.push_back(std::move(image));
  kernels_.push_back({.index = TakeIndex(), .module = modules_.back().get(), .entry = std::move(entry)});
  return &kernels_.back();
}

const Kernel* KernelCache::AddEntry(const Kernel& sibling, std::string entry) {
  kernels_.push_back({.index = TakeIndex(), .module = sibling.module, .entry = std::move(entry)});
  return &kernels_.back();
}

void KernelCache::InBackground(std::function<void()> work) { client_.RunInBackground(std::move(work)); }

std::shared_ptr<const Code> KernelCache::Assemble(std::string_view ptx) { return client_.Assemble(ptx); }

}  // namespace xpud::kernels
