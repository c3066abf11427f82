#include "kernels/compiler/kernel_compiler.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/compiler/backend.h"
#include "kernels/compiler/skeleton.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "proto/base/check.h"
#include "proto/base/status_macros.h"

namespace xpud::kernels {
namespace {

std::string Sha256(std::string_view text) {
  const auto hash =
      llvm::SHA256::hash(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  return llvm::toHex(llvm::ArrayRef(hash.data(), hash.size()));
}

uint64_t NanosecondsSince(std::chrono::steady_clock::time_point began) {
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began;
  return static_cast<uint64_t>(took.count());
}

}  // namespace

// A client as its requests refer to it. Requests may outlive the client.
struct KernelCompiler::Asker {
  Asker(std::function<void()> ready, Assembler assembler)
      : on_ready(std::move(ready)), assemble(std::move(assembler)) {}

  const std::function<void()> on_ready;
  const Assembler assemble;
  std::atomic<uint64_t> compiled{0}, disk_hits{0}, shared_hits{0}, failed{0};
  Mutex times_mutex;
  Histogram compile_times ABSL_GUARDED_BY(times_mutex);
  size_t unsettled = 0;  // requests; guarded by the compiler's mutex_

  // Held while the compiler uses the client's functions, skeletons or thread.
  Mutex in_use;
  BackgroundThread* thread ABSL_GUARDED_BY(in_use) = nullptr;  // null: the client is gone
};

// How one client would make an entry.
struct KernelCompiler::Request {
  std::shared_ptr<Asker> asker;
  std::function<std::string()> name;      // for messages: "kernel NAME: ", or ""
  std::function<std::string()> identity;  // on disk, after that of the compiler
  std::function<MadeCode()> compile;      // to what the compiler assembles, if it does
  // What is compiled elsewhere. Then these functions need nothing of the client, and `compile` is not called.
  std::string bytes = {};
  KernelOwner* owner = nullptr;  // only while Find runs
};

struct KernelCompiler::Entry : Code {
  using Code::Code;

  std::string key;         // in entries_
  bool elsewhere = false;  // it is compiled in another process
  // Guarded by the compiler's mutex_; none once the entry is settled.
  std::vector<Request> requests;
  std::vector<CompileService::Waiter> waiters;
  uint64_t job = 0;  // while it is compiled elsewhere
  // Written by the compile thread before the entry is settled.
  std::string name, identity;
  std::optional<std::string> text;  // to be assembled
};

// A client's turn to assemble an entry, on the client's thread. If the client ends before that, the next
// client has its turn.
class KernelCompiler::Turn {
 public:
  Turn(KernelCompiler& compiler, std::shared_ptr<Entry> entry, std::shared_ptr<Asker> asker, size_t tried,
       std::optional<MadeCode> code)
      : compiler_(compiler),
        entry_(std::move(entry)),
        asker_(std::move(asker)),
        tried_(tried),
        code_(std::move(code)) {}
  ~Turn() {
    if (entry_ != nullptr) compiler_.Resume(std::move(entry_), tried_, std::move(code_));
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  void Take() {
    const auto began = std::chrono::steady_clock::now();
    MadeCode made = asker_->assemble(*entry_->text);
    CountTime(*asker_, NanosecondsSince(began));
    code_ = compiler_.Finish(std::move(made), *asker_, *entry_);
    compiler_.Resume(std::move(entry_), tried_, std::move(code_));
  }
  static void CountTime(Asker& asker, uint64_t ns) {
    MutexLock lock(asker.times_mutex);
    asker.compile_times.Add(ns);
  }

 private:
  KernelCompiler& compiler_;
  std::shared_ptr<Entry> entry_;
  const std::shared_ptr<Asker> asker_;
  const size_t tried_;  // requests, with this one
  std::optional<MadeCode> code_;
};

absl::StatusOr<std::shared_ptr<KernelCompiler>> KernelCompiler::Create(const Options& options) {
  std::unique_ptr<ObjectCache> disk;
  if (!options.cache_directory.empty()) {
    ASSIGN_OR_RETURN(disk, ObjectCache::Open(options.cache_directory, options.cache_bytes));
  }
  std::shared_ptr<KernelCompiler> compiler(new KernelCompiler(options, std::move(disk)));
  RETURN_IF_ERROR(compiler->thread_.Start());
  if (options.elsewhere != nullptr) RETURN_IF_ERROR(compiler->requests_thread_.Start());
  return compiler;
}

KernelCompiler::KernelCompiler(const Options& options, std::unique_ptr<ObjectCache> disk)
    : target_(options.target),
      assembles_(options.assembles),
      identity_(absl::StrCat(CodeIdentity(target_), assembles_ ? "|assembled" : "")),
      disk_(std::move(disk)),
      on_cache_failure_(options.on_cache_failure),
      elsewhere_(options.elsewhere) {}

BackgroundThread& KernelCompiler::ThreadOf(const Entry& entry) {
  return entry.elsewhere ? requests_thread_ : thread_;
}

void KernelCompiler::SetDiskLimit(uint64_t bytes) {
  if (disk_ != nullptr) disk_->SetLimit(bytes);
}

size_t KernelCompiler::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

absl::StatusOr<std::string> KernelCompiler::Compile(const CodeTarget& target, const Skeleton& skeleton,
                                                    const KernelKey& key) {
  llvm::LLVMContext context;
  Emitter emitter(target.target, context);
  RETURN_IF_ERROR(skeleton.Emit(key, skeleton.NameOf(key), emitter));
  return Generate(target, emitter.Finish());
}

std::shared_ptr<const Code> KernelCompiler::Find(const std::string& key, Request request) {
  MutexLock lock(mutex_);
  std::shared_ptr<Entry>& entry = entries_[key];
  const bool is_new = entry == nullptr;
  if (is_new) {
    entry = std::make_shared<Entry>();
    entry->key = key;
    entry->elsewhere = !request.bytes.empty();
    ThreadOf(*entry).Run([this, made = entry]() mutable { Continue(std::move(made), 0, std::nullopt); });
  } else {
    request.asker->shared_hits.fetch_add(1, std::memory_order_relaxed);
  }
  if (entry->state() == Code::State::kPending) {
    ++request.asker->unsettled;
    if (request.owner != nullptr) AddWaiter(*entry, *request.owner);
    entry->requests.push_back(std::move(request));
  }
  return entry;
}

void KernelCompiler::Join(const Code& code, KernelOwner& owner) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(static_cast<const Entry&>(code).key);
  if (found != entries_.end() && found->second.get() == &code && code.state() == Code::State::kPending)
    AddWaiter(*found->second, owner);
}

void KernelCompiler::AddWaiter(Entry& entry, KernelOwner& owner) {
  if (!entry.elsewhere) return;
  for (const CompileService::Waiter& waiter : entry.waiters)
    if (waiter.owner.lock().get() == &owner) return;
  owner.AddPending(1);
  entry.waiters.push_back({owner.weak_from_this(), owner.tenant(), owner.is_ahead()});
  if (entry.job != 0) elsewhere_->Join(entry.job, entry.waiters.back());
}

void KernelCompiler::Drop(std::shared_ptr<const Code> code) {
  MutexLock lock(mutex_);
  const std::string key = static_cast<const Entry&>(*code).key;
  code.reset();
  ForgetUnused(key);
}

// References to entries are taken and dropped under the lock. The queue holds a reference to each entry that
// is not settled.
void KernelCompiler::ForgetUnused(const std::string& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.use_count() != 1) return;
  if (disk_ != nullptr && found->second->state() == Code::State::kReady)
    thread_.Run([this, identity = found->second->identity] { disk_->Release(identity); });
  entries_.erase(found);
}

void KernelCompiler::WaitFor(const Asker& asker) {
  MutexLock lock(mutex_);
  while (asker.unsettled != 0) done_.Wait(mutex_);
}

// ---- the compile thread

// The first client that still exists compiles and assembles. If its device is lost, the next one assembles.
void KernelCompiler::Continue(std::shared_ptr<Entry> entry, size_t tried, std::optional<MadeCode> code) {
  std::vector<Request> settled;
  for (; !Settle(*entry, tried, code, settled); ++tried) {
    const Request request = RequestOf(*entry, tried);
    if (entry->elsewhere && !entry->text) {
      code = Load(request, *entry);
      if (code) continue;
      return CompileElsewhere(request, entry, tried);
    }
    MutexLock lock(request.asker->in_use);
    if (request.asker->thread == nullptr) continue;
    if (!entry->text) code = LoadOrCompile(request, *entry);
    if (!entry->text) continue;
    const auto turn =
        std::make_shared<Turn>(*this, std::move(entry), request.asker, tried + 1, std::move(code));
    return request.asker->thread->Run([turn] { turn->Take(); });
  }
  for (const Request& request : settled) {
    MutexLock lock(request.asker->in_use);
    if (request.asker->thread != nullptr && request.asker->on_ready) request.asker->on_ready();
  }
  MutexLock lock(mutex_);
  for (const Request& request : settled) --request.asker->unsettled;
  done_.NotifyAll();
  const std::string key = entry->key;
  entry.reset();
  ForgetUnused(key);
}

void KernelCompiler::Resume(std::shared_ptr<Entry> entry, size_t tried, std::optional<MadeCode> code) {
  MutexLock lock(mutex_);
  BackgroundThread& thread = ThreadOf(*entry);
  thread.Run([this, made = std::move(entry), tried, so_far = std::move(code)]() mutable {
    Continue(std::move(made), tried, std::move(so_far));
  });
}

KernelCompiler::Request KernelCompiler::RequestOf(const Entry& entry, size_t number) {
  MutexLock lock(mutex_);
  return entry.requests[number];
}

std::optional<KernelCompiler::MadeCode> KernelCompiler::Load(const Request& request, Entry& entry) {
  entry.name = request.name();
  entry.identity = absl::StrCat(identity_, "|", request.identity());
  if (disk_ == nullptr) return std::nullopt;
  MadeCode code = disk_->Load(entry.identity);
  if (!code.ok()) return std::nullopt;
  request.asker->disk_hits.fetch_add(1, std::memory_order_relaxed);
  return code;
}

// Waits for nothing, so that the requests' thread goes on with the next entry.
void KernelCompiler::CompileElsewhere(const Request& request, const std::shared_ptr<Entry>& entry,
                                      size_t tried) {
  const auto done = [weak = weak_from_this(), entry, asker = request.asker, tried](MadeCode code,
                                                                                   uint64_t ns) {
    if (const auto compiler = weak.lock())
      compiler->CompiledElsewhere(*asker, entry, tried, std::move(code), ns);
  };
  MutexLock lock(mutex_);
  entry->job = elsewhere_->Compile({target_, request.bytes, entry->waiters, done});
}

// On a thread of the service.
void KernelCompiler::CompiledElsewhere(Asker& asker, std::shared_ptr<Entry> entry, size_t tried,
                                       MadeCode code, uint64_t ns) {
  if (absl::IsCancelled(code.status())) return Resume(std::move(entry), tried + 1, std::move(code));
  Turn::CountTime(asker, ns);
  if (code.ok() && assembles_) {
    entry->text = *std::move(code);
    return Resume(std::move(entry), tried, std::nullopt);
  }
  code = Finish(std::move(code), asker, *entry);
  Resume(std::move(entry), tried + 1, std::move(code));
}

std::optional<KernelCompiler::MadeCode> KernelCompiler::LoadOrCompile(const Request& request, Entry& entry) {
  if (auto loaded = Load(request, entry)) return loaded;
  const auto began = std::chrono::steady_clock::now();
  MadeCode code = request.compile();
  Turn::CountTime(*request.asker, NanosecondsSince(began));
  if (!code.ok() || !assembles_) return Finish(std::move(code), *request.asker, entry);
  entry.text = *std::move(code);
  return std::nullopt;
}

void KernelCompiler::Save(const std::string& identity, const std::string& code) {
  const absl::Status saved = disk_->Save(identity, code);
  const bool failed_before = disk_fails_.exchange(!saved.ok());
  if (!saved.ok() && !failed_before && on_cache_failure_ != nullptr) on_cache_failure_(saved);
}

// Counts and keeps the code; adds the kernel's name to an error.
KernelCompiler::MadeCode KernelCompiler::Finish(MadeCode code, Asker& asker, const Entry& entry) {
  (code.ok() ? asker.compiled : asker.failed).fetch_add(1, std::memory_order_relaxed);
  if (!code.ok())
    return absl::Status(code.status().code(), absl::StrCat(entry.name, code.status().message()));
  const bool is_text = entry.text && *code == *entry.text;  // the device takes it as it is
  if (disk_ != nullptr && !is_text) Save(entry.identity, *code);
  return code;
}

// An error is kept for all clients, except the loss of a client's device or of the process that compiled:
// then the next request compiles again. Without code and without an error, all clients that requested the
// entry have ended.
bool KernelCompiler::Settle(Entry& entry, size_t tried, const std::optional<MadeCode>& code,
                            std::vector<Request>& settled) {
  MutexLock lock(mutex_);
  const bool lost = !code || absl::IsUnavailable(code->status());
  if (lost && tried < entry.requests.size()) return false;
  const bool passes = code && (absl::IsAborted(code->status()) || absl::IsCancelled(code->status()));
  if (lost || passes) entries_.erase(entry.key);
  if (!code) {
    entry.SetFailed(absl::CancelledError("nobody waits for this kernel"));
  } else if (code->ok()) {
    entry.SetReady(ImageOf(**code));
  } else {
    entry.SetFailed(code->status());
  }
  entry.text.reset();
  settled.swap(entry.requests);
  for (const CompileService::Waiter& waiter : entry.waiters)
    if (const auto owner = waiter.owner.lock()) owner->AddPending(-1);
  entry.waiters.clear();
  entry.job = 0;
  return true;
}

ModuleImage KernelCompiler::ImageOf(std::string code) const {
  using Format = ModuleImage::Format;
  if (target_.target == Target::kHost || assembles_) return {Format::kNative, std::move(code)};
  return {target_.target == Target::kNvptx ? Format::kPtx : Format::kSpirv, std::move(code)};
}

// ---- Client

KernelCompiler::Client::Client(std::shared_ptr<KernelCompiler> compiler, std::function<void()> on_ready,
                               Assembler assemble)
    : compiler_(std::move(compiler)),
      asker_(std::make_shared<Asker>(std::move(on_ready), std::move(assemble))) {
  XPUD_CHECK((asker_->assemble != nullptr) == compiler_->assembles());
  MutexLock lock(asker_->in_use);
  asker_->thread = &thread_;
}

KernelCompiler::Client::~Client() {
  MutexLock lock(asker_->in_use);
  asker_->thread = nullptr;
}

std::shared_ptr<const Code> KernelCompiler::Client::Find(const Skeleton& skeleton, const KernelKey& key,
                                                         KernelOwner* owner) {
  const auto name = [&skeleton, key, kept = skeleton.Keep(key)] {
    return absl::StrCat("kernel ", skeleton.NameOf(key), ": ");
  };
  const auto identity = [&skeleton, key] { return skeleton.IdentityOf(key); };
  const auto compile = [&skeleton, key, &target = compiler_->target_] {
    return Compile(target, skeleton, key);
  };
  const std::string_view words(reinterpret_cast<const char*>(key.words.data()), sizeof(key.words));
  Request request = {asker_, name, identity, compile};
  request.owner = owner;
  if (compiler_->elsewhere_ != nullptr) {
    request.bytes = skeleton.RequestOf(key);
    if (!request.bytes.empty()) {
      request.name = [text = name()] { return text; };
      request.identity = [text = identity()] { return text; };
    }
  }
  return compiler_->Find(std::string("kernel ").append(words), std::move(request));
}

std::shared_ptr<const Code> KernelCompiler::Client::Assemble(std::string_view ptx) {
  if (!compiler_->assembles()) return std::make_shared<const Entry>(compiler_->ImageOf(std::string(ptx)));
  const auto name = [] { return std::string(); };
  const auto identity = [ptx] { return "ptx|" + Sha256(ptx); };
  const auto text = [ptx] { return std::string(ptx); };
  const auto address = reinterpret_cast<uintptr_t>(ptx.data());
  return compiler_->Find(absl::StrCat("ptx ", address, " ", ptx.size()), {asker_, name, identity, text});
}

void KernelCompiler::Client::RunInBackground(std::function<void()> work) {
  thread_.Run([work = std::move(work), &asker = *asker_] {
    work();
    if (asker.on_ready) asker.on_ready();
  });
}

void KernelCompiler::Client::WaitForCompiles() {
  compiler_->WaitFor(*asker_);
  thread_.Wait();
}

KernelCounters KernelCompiler::Client::counters() const {
  const auto read = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  const Histogram compile_times = [&] {
    MutexLock lock(asker_->times_mutex);
    return asker_->compile_times;
  }();
  return {.compiled = read(asker_->compiled),
          .disk_hits = read(asker_->disk_hits),
          .shared_hits = read(asker_->shared_hits),
          .failed = read(asker_->failed),
          .compile_ns = compile_times.sum_ns(),
          .compile_times = compile_times};
}

}  // namespace xpud::kernels
