// The compiler of all devices of one target and processor: its thread, the disk cache, and the code in
// memory, which is made once whoever asks for it and shared by all who use it. A device's library asks
// through a Client of its own, whose thread does what its device may delay: it assembles and asks.
// Thread-safe, but for what Client says.
//
// A kernel's code is kept until the last client drops it; then the disk cache may still have it. So the
// limits of the libraries bound what is in memory. The few PTX texts that this binary contains are kept to
// the end.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/api/code.h"
#include "kernels/api/kernel_owner.h"
#include "kernels/api/kernel_store.h"
#include "kernels/compiler/background_thread.h"
#include "kernels/compiler/code_target.h"
#include "kernels/compiler/compile_service.h"
#include "kernels/compiler/kernel_key.h"
#include "kernels/compiler/object_cache.h"
#include "proto/base/mutex.h"

namespace xpud::kernels {

class Skeleton;

class KernelCompiler : public std::enable_shared_from_this<KernelCompiler> {
 public:
  // Makes machine code of PTX, or returns the text if the device takes it as it is (then it is not kept on
  // disk, so that each process has its device prepare it here). See KernelLibrary::Options.
  using Assembler = std::function<absl::StatusOr<std::string>(const std::string& ptx)>;

  struct Options {
    CodeTarget target = Target::kHost;
    bool assembles = false;             // whether the clients have an assembler: all or none
    std::string cache_directory = {};   // empty: no disk cache
    uint64_t cache_bytes = UINT64_MAX;  // limit of the disk cache
    // Compiles what Skeleton::RequestOf gives. Outlives the compiler, or is stopped before. Null: everything
    // is compiled here.
    CompileService* elsewhere = nullptr;
    // Called with the first error of a file that cannot be saved; again only after one could be. Any thread.
    std::function<void(const absl::Status&)> on_cache_failure = {};
  };

  // Returns PermissionDenied if the cache directory cannot be trusted (ObjectCache::Open), and
  // ResourceExhausted if the compile thread cannot be started.
  static absl::StatusOr<std::shared_ptr<KernelCompiler>> Create(const Options& options);
  // REQUIRES: no client exists. Drops what waits.
  ~KernelCompiler() = default;
  KernelCompiler(const KernelCompiler&) = delete;
  KernelCompiler& operator=(const KernelCompiler&) = delete;

  const CodeTarget& target() const { return target_; }
  bool assembles() const { return assembles_; }
  void SetDiskLimit(uint64_t bytes);
  // How much code is in memory or being made.
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Compiles now, on the calling thread and without a cache.
  static absl::StatusOr<std::string> Compile(const CodeTarget& target, const Skeleton& skeleton,
                                             const KernelKey& key);

  class Client;

 private:
  using MadeCode = absl::StatusOr<std::string>;
  struct Asker;
  struct Request;
  struct Entry;
  class Turn;

  KernelCompiler(const Options& options, std::unique_ptr<ObjectCache> disk);
  std::shared_ptr<const Code> Find(const std::string& key, Request request) ABSL_LOCKS_EXCLUDED(mutex_);
  void Join(const Code& code, KernelOwner& owner) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(std::shared_ptr<const Code> code) ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitFor(const Asker& asker) ABSL_LOCKS_EXCLUDED(mutex_);

  // The compile thread.
  // Makes the entry, of whose requests `tried` gave `code` or nothing, with the next ones.
  void Continue(std::shared_ptr<Entry> entry, size_t tried, std::optional<MadeCode> code)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Settles the entry and returns true, with those who wait for it, unless another request can still make it.
  bool Settle(Entry& entry, size_t tried, const std::optional<MadeCode>& code, std::vector<Request>& settled)
      ABSL_LOCKS_EXCLUDED(mutex_);
  Request RequestOf(const Entry& entry, size_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns nullopt if it is not on disk.
  std::optional<MadeCode> Load(const Request& request, Entry& entry);
  // Returns nullopt if there is text to be assembled.
  std::optional<MadeCode> LoadOrCompile(const Request& request, Entry& entry);
  // Goes on with the entry once it is compiled.
  void CompileElsewhere(const Request& request, const std::shared_ptr<Entry>& entry, size_t tried)
      ABSL_LOCKS_EXCLUDED(mutex_);

  BackgroundThread& ThreadOf(const Entry& entry);
  // Any thread.
  void Resume(std::shared_ptr<Entry> entry, size_t tried, std::optional<MadeCode> code)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void CompiledElsewhere(Asker& asker, std::shared_ptr<Entry> entry, size_t tried, MadeCode code, uint64_t ns)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void AddWaiter(Entry& entry, KernelOwner& owner) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Save(const std::string& identity, const std::string& code);
  MadeCode Finish(MadeCode code, Asker& asker, const Entry& entry);
  // Forgets the entry of `key` if nobody holds it.
  void ForgetUnused(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ModuleImage ImageOf(std::string code) const;

  // Constant after construction.
  const CodeTarget target_;
  const bool assembles_;
  const std::string identity_;  // of all that is compiled here
  const std::unique_ptr<ObjectCache> disk_;
  const std::function<void(const absl::Status&)> on_cache_failure_;
  CompileService* const elsewhere_;

  std::atomic<bool> disk_fails_{false};

  mutable Mutex mutex_;
  CondVar done_;
  absl::flat_hash_map<std::string, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  // Last: they end before the rest.
  BackgroundThread thread_{"xpud-compiler"};
  BackgroundThread requests_thread_{"xpud-requests"};  // disk and order of what is compiled elsewhere
};

// What one library asks of the compiler. One thread at a time: that of its library.
class KernelCompiler::Client {
 public:
  // `on_ready` is called on the compiler's thread each time something that this client asked for was settled,
  // and on the client's thread after RunInBackground's work. `assemble`: null where the compiler does not
  // assemble; called on the client's thread.
  Client(std::shared_ptr<KernelCompiler> compiler, std::function<void()> on_ready, Assembler assemble);
  // Waits while the compiler, or the client's thread, uses a skeleton or a function of this client. What else
  // it asked for is made for the other clients that want it, or not at all.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Starts the client's thread. Returns ResourceExhausted if the system has no thread left.
  absl::Status Start() { return thread_.Start(); }
  // REQUIRES, for what follows: Start succeeded.
  // Returns the code of a kernel or of a PTX text of static lifetime, whose state says whether it is made
  // already. The first to ask has it made. `skeleton` outlives this client. Pass it to Drop when it is no
  // longer used. `owner` (null: none) is the one who waits, if it is compiled elsewhere.
  std::shared_ptr<const Code> Find(const Skeleton& skeleton, const KernelKey& key,
                                   KernelOwner* owner = nullptr);
  std::shared_ptr<const Code> Assemble(std::string_view ptx);
  // `owner` waits, too, for code that Find returned for another one.
  void Join(const Code& code, KernelOwner& owner) { compiler_->Join(code, owner); }
  void Drop(std::shared_ptr<const Code> code) { compiler_->Drop(std::move(code)); }
  // Runs work, and then `on_ready`, on the client's thread, which also assembles: one after the other. The
  // destructor waits for the work that has begun, and drops the rest.
  void RunInBackground(std::function<void()> work);
  // Returns when all that this client asked for is settled, and all background work is done.
  void WaitForCompiles();
  // Without memory_hits.
  KernelCounters counters() const;
  KernelCompiler& compiler() const { return *compiler_; }

 private:
  const std::shared_ptr<KernelCompiler> compiler_;
  const std::shared_ptr<Asker> asker_;
  BackgroundThread thread_{"xpud-assemble"};  // last: it ends before the rest
};

}  // namespace xpud::kernels
