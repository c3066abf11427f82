#include "kernels/compiler/kernel_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace xpud::kernels {
namespace {

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
    if (entry->kernel != nullptr) [[likely]] {
      ++memory_hits_;
      return entry->kernel;
    }
    return Settle(*entry);
  }
  MakeRoom();
  return Settle(AddEntryFor(skeleton, key));
}

// Returns what Find returns, and gives the kernel an index once its code is ready.
absl::StatusOr<const Kernel*> KernelCache::Settle(Entry& entry) {
  switch (entry.code->state()) {
    case Code::State::kPending:
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
  entry.code = client_.Find(skeleton, key);
  if (entries_.size() * 2 > table_.size()) {
    table_.assign(table_.size() * 2, nullptr);
    for (const auto& known : entries_) Insert(known.get());
  } else {
    Insert(&entry);
  }
  return entry;
}

// An eighth at a time, so that the search is seldom. What is being compiled stays.
void KernelCache::MakeRoom() {
  if (entries_.size() >= most_) {
    const auto settled = std::partition(entries_.begin(), entries_.end(), [](const auto& entry) {
      return entry->code->state() == Code::State::kPending;
    });
    const auto kept = settled + std::min<ptrdiff_t>(entries_.end() - settled,
                                                    static_cast<ptrdiff_t>(most_ - most_ / 8 - 1));
    std::nth_element(settled, kept, entries_.end(),
                     [](const auto& a, const auto& b) { return a->used > b->used; });
    std::move(kept, entries_.end(), std::back_inserter(leaving_));
    entries_.erase(kept, entries_.end());
    table_.assign(table_.size(), nullptr);
    for (const auto& entry : entries_) Insert(entry.get());
  }
  if (!leaving_.empty()) ForgetLeaving();
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
