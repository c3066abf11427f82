#include "kernels/compiler/kernel_cache.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/compiler/backend.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

uint64_t HashOf(const KernelKey& key) {
  const auto& w = key.words;
  uint64_t h = w[0] ^ w[1] * 0x9E3779B97F4A7C15u ^ w[2] * 0xC2B2AE3D27D4EB4Fu ^ w[3] * 0x165667B19E3779F9u;
  h *= 0xD6E8FEB86659FD93u;
  return h ^ h >> 32;
}

}  // namespace

KernelCache::KernelCache(CodeTarget target, std::unique_ptr<ObjectCache> disk, std::function<void()> on_ready,
                         Assembler assemble, size_t most, ForgetKernels forget)
    : target_(std::move(target)),
      identity_(absl::StrCat(CodeIdentity(target_), assemble != nullptr ? "|assembled" : "")),
      disk_(std::move(disk)),
      on_ready_(std::move(on_ready)),
      assemble_(std::move(assemble)),
      forget_(std::move(forget)),
      table_(1024),
      most_(std::max<size_t>(most, 1)) {
  compiler_ = std::thread([this] { Run(); });
}

KernelCache::~KernelCache() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  compiler_.join();
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
    const Kernel* const kernel = entry->kernel.load(std::memory_order_acquire);
    if (kernel != nullptr) [[likely]] {
      ++memory_hits_;
      return kernel;
    }
    const absl::Status* const failure = entry->failure.load(std::memory_order_acquire);
    if (failure != nullptr) return *failure;
    return nullptr;
  }
  MakeRoom();
  Entry& added = AddEntryFor(skeleton, key);
  InBackground([this, &added] { Finish(added); });
  return nullptr;
}

void KernelCache::SetLimits(size_t most, uint64_t disk_bytes) {
  most_ = std::max<size_t>(most, 1);
  if (disk_ != nullptr) disk_->SetLimit(disk_bytes);
}

KernelCache::Entry& KernelCache::AddEntryFor(const Skeleton& skeleton, const KernelKey& key) {
  Entry& entry = *entries_.emplace_back(std::make_unique<Entry>());
  entry.key = key;
  entry.skeleton = &skeleton;
  entry.used = ++uses_;
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
    const auto settled =
        std::partition(entries_.begin(), entries_.end(), [](const auto& entry) { return !entry->settled(); });
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
    if (const Kernel* const kernel = entry->kernel.load()) needed.push_back(kernel);
  }
  if (forget_) {
    forget_(needed);
  } else {
    needed.clear();
  }
  std::vector<std::string> released;
  std::erase_if(leaving_, [&](const auto& entry) {
    const Kernel* const kernel = entry->kernel.load();
    if (std::find(needed.begin(), needed.end(), kernel) != needed.end()) return false;
    if (kernel == nullptr) return true;
    MutexLock lock(mutex_);
    free_indices_.push_back(kernel->index);
    released.push_back(IdentityOf(*entry, kernel->entry));
    return true;
  });
  if (disk_ == nullptr || released.empty()) return;
  InBackground([this, released = std::move(released)] {
    for (const std::string& identity : released) disk_->Release(identity);
  });
}

void KernelCache::InBackground(std::function<void()> work) {
  MutexLock lock(mutex_);
  queue_.push_back(std::move(work));
  ++pending_;
  changed_.NotifyAll();
}

void KernelCache::Run() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
    if (on_ready_) on_ready_();
    MutexLock lock(mutex_);
    --pending_;
    changed_.NotifyAll();
  }
}

absl::StatusOr<std::string> KernelCache::Compile(const CodeTarget& target, const Skeleton& skeleton,
                                                 const KernelKey& key) {
  llvm::LLVMContext context;
  Emitter emitter(target.target, context);
  RETURN_IF_ERROR(skeleton.Emit(key, skeleton.NameOf(key), emitter));
  return Generate(target, emitter.Finish());
}

absl::StatusOr<std::string> KernelCache::CompileAndAssemble(const Entry& entry) const {
  ASSIGN_OR_RETURN(std::string code, Compile(target_, *entry.skeleton, entry.key));
  if (assemble_ == nullptr) return code;
  return assemble_(code);
}

std::string KernelCache::IdentityOf(const Entry& entry, const std::string& name) const {
  std::string identity = absl::StrCat(identity_, "|", name, "|", entry.skeleton->Describe(entry.key));
  for (const uint64_t word : entry.key.words) absl::StrAppend(&identity, "|", absl::Hex(word));
  return identity;
}

absl::StatusOr<std::string> KernelCache::LoadOrCompile(const Entry& entry, const std::string& name) {
  return LoadOrMake(IdentityOf(entry, name), [&] { return CompileAndAssemble(entry); });
}

absl::StatusOr<std::string> KernelCache::LoadOrMake(const std::string& identity,
                                                    absl::FunctionRef<absl::StatusOr<std::string>()> make) {
  if (disk_ != nullptr) {
    auto code = disk_->Load(identity);
    if (code.ok()) {
      disk_hits_.fetch_add(1, std::memory_order_relaxed);
      return code;
    }
  }
  const auto began = std::chrono::steady_clock::now();
  auto code = make();
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began;
  compile_ns_.fetch_add(static_cast<uint64_t>(took.count()), std::memory_order_relaxed);
  (code.ok() ? compiled_ : failed_).fetch_add(1, std::memory_order_relaxed);
  if (code.ok() && disk_ != nullptr) disk_->Save(identity, *code);
  return code;
}

absl::StatusOr<ModuleImage> KernelCache::Assemble(std::string_view ptx) {
  if (assemble_ == nullptr) return ImageOf(std::string(ptx));
  const auto hash =
      llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(ptx.data()), ptx.size()));
  const std::string identity =
      absl::StrCat(identity_, "|ptx|", llvm::toHex(llvm::ArrayRef(hash.data(), hash.size())));
  ASSIGN_OR_RETURN(std::string code, LoadOrMake(identity, [&] { return assemble_(std::string(ptx)); }));
  return ImageOf(std::move(code));
}

void KernelCache::Finish(Entry& entry) {
  const std::string name = entry.skeleton->NameOf(entry.key);
  absl::StatusOr<std::string> code = LoadOrCompile(entry, name);
  if (!code.ok()) {
    entry.status = std::make_unique<absl::Status>(
        code.status().code(), absl::StrCat("kernel ", name, ": ", code.status().message()));
    entry.failure.store(entry.status.get(), std::memory_order_release);
    return;
  }
  entry.image = ImageOf(*std::move(code));
  uint32_t index = 0;
  {
    MutexLock lock(mutex_);
    index = TakeIndex();
  }
  entry.made = {index, &entry.image, name, entry.skeleton->SignatureOf(entry.key)};
  entry.kernel.store(&entry.made, std::memory_order_release);
}

uint32_t KernelCache::TakeIndex() {
  if (free_indices_.empty()) return indices_++;
  const uint32_t index = free_indices_.back();
  free_indices_.pop_back();
  return index;
}

ModuleImage KernelCache::ImageOf(std::string code) const {
  using Format = ModuleImage::Format;
  if (target() == Target::kHost || assemble_ != nullptr) return {Format::kNative, std::move(code)};
  return {target() == Target::kNvptx ? Format::kPtx : Format::kSpirv, std::move(code)};
}

KernelCounters KernelCache::counters() const {
  return {.compiled = compiled_.load(std::memory_order_relaxed),
          .disk_hits = disk_hits_.load(std::memory_order_relaxed),
          .memory_hits = memory_hits_,
          .failed = failed_.load(std::memory_order_relaxed),
          .compile_ns = compile_ns_.load(std::memory_order_relaxed)};
}

void KernelCache::WaitForCompiles() {
  MutexLock lock(mutex_);
  while (pending_ != 0) changed_.Wait(mutex_);
}

const Kernel* KernelCache::Add(ModuleImage image, std::string entry) {
  MutexLock lock(mutex_);
  modules_.push_back(std::move(image));
  kernels_.push_back({.index = TakeIndex(), .module = &modules_.back(), .entry = std::move(entry)});
  return &kernels_.back();
}

const Kernel* KernelCache::AddEntry(const Kernel& sibling, std::string entry) {
  MutexLock lock(mutex_);
  kernels_.push_back({.index = TakeIndex(), .module = sibling.module, .entry = std::move(entry)});
  return &kernels_.back();
}

}  // namespace xpud::kernels
