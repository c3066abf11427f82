#include "drivers/cuda/trace.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "proto/base/clock.h"

namespace xpud::drivers::cuda {
namespace {

// The part of cupti.h that we use.
enum CUptiResult : int { CUPTI_SUCCESS = 0 };
enum CUpti_CallbackDomain : int { CUPTI_CB_DOMAIN_DRIVER_API = 1, CUPTI_CB_DOMAIN_RUNTIME_API = 2 };
enum CUpti_ApiCallbackSite : int { CUPTI_API_ENTER = 0 };
enum CUpti_ActivityKind : int {
  CUPTI_ACTIVITY_KIND_MEMCPY = 1,
  CUPTI_ACTIVITY_KIND_MEMSET = 2,
  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL = 10,
};
constexpr uint32_t CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1;
using CUpti_SubscriberHandle = struct CUpti_Subscriber_st*;
struct CUpti_CallbackData {
  CUpti_ApiCallbackSite callbackSite;
  const char* functionName;
  const void* functionParams;
  void* functionReturnValue;
  const char* symbolName;
  void* context;
  uint32_t contextUid;
  uint64_t* correlationData;
  uint32_t correlationId;
};
// The first fields of each record that we use, in all versions since CUDA 11.
struct CUpti_ActivityKernel {
  CUpti_ActivityKind kind;
  uint32_t unused[3];
  uint64_t start, end, completed;
  uint32_t deviceId, contextId, streamId;
  int32_t grid[3], block[3], sharedMemory[2];
  uint32_t localMemory[2];
  uint32_t correlationId;
};
static_assert(offsetof(CUpti_ActivityKernel, start) == 16 &&
              offsetof(CUpti_ActivityKernel, correlationId) == 92);
struct CUpti_ActivityMemory {  // CUpti_ActivityMemcpy, CUpti_ActivityMemset
  CUpti_ActivityKind kind;
  uint32_t unused;
  uint64_t bytes, start, end;
  uint32_t deviceId, contextId, streamId, correlationId;
};
static_assert(offsetof(CUpti_ActivityMemory, start) == 16 &&
              offsetof(CUpti_ActivityMemory, correlationId) == 44);

using Callback = void (*)(void*, CUpti_CallbackDomain, uint32_t, const CUpti_CallbackData*);
using BufferRequested = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using BufferCompleted = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid);

struct Functions {
  CUptiResult (*subscribe)(CUpti_SubscriberHandle*, Callback, void*);
  CUptiResult (*unsubscribe)(CUpti_SubscriberHandle);
  CUptiResult (*enable_domain)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain);
  CUptiResult (*register_timestamp)(uint64_t (*)());
  CUptiResult (*register_callbacks)(BufferRequested, BufferCompleted);
  CUptiResult (*enable)(CUpti_ActivityKind);
  CUptiResult (*disable)(CUpti_ActivityKind);
  CUptiResult (*flush)(uint32_t);
  CUptiResult (*next)(uint8_t*, size_t, CUpti_ActivityKind**);
  bool usable;
};

template <typename Function>
bool Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  return function != nullptr;
}

void* Open() {
  const char* const named = std::getenv("XPUD_CUPTI");
  if (named != nullptr && *named != '\0') return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  for (const char* const name : {"libcupti.so.13", "libcupti.so.12"})
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  return nullptr;
}

Functions Load() {
  Functions f{};
  void* const library = Open();
  if (library == nullptr) return f;
  f.usable =
      Find(library, "cuptiSubscribe", f.subscribe) && Find(library, "cuptiUnsubscribe", f.unsubscribe) &&
      Find(library, "cuptiEnableDomain", f.enable_domain) &&
      Find(library, "cuptiActivityRegisterTimestampCallback", f.register_timestamp) &&
      Find(library, "cuptiActivityRegisterCallbacks", f.register_callbacks) &&
      Find(library, "cuptiActivityEnable", f.enable) && Find(library, "cuptiActivityDisable", f.disable) &&
      Find(library, "cuptiActivityFlushAll", f.flush) && Find(library, "cuptiActivityGetNextRecord", f.next);
  return f;
}

const Functions& Cupti() {
  static const Functions functions = Load();
  return functions;
}

// The tags of the last calls into CUDA, by their correlation numbers, which CUPTI counts. A record arrives
// long before as many calls as there are entries have followed its own.
class CallTags {
 public:
  void Put(uint32_t call, uint64_t tag) {
    Entry& entry = entries_[call % entries_.size()];
    entry.call.store(0, std::memory_order_relaxed);
    entry.tag.store(tag, std::memory_order_release);
    entry.call.store(call, std::memory_order_release);
  }
  // Returns 0 if the call had no tag.
  uint64_t Of(uint32_t call) const {
    const Entry& entry = entries_[call % entries_.size()];
    return entry.call.load(std::memory_order_acquire) == call ? entry.tag.load(std::memory_order_relaxed) : 0;
  }

 private:
  struct Entry {
    std::atomic<uint32_t> call;
    std::atomic<uint64_t> tag;
  };
  std::array<Entry, 1 << 18> entries_;
};

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};
constexpr CUpti_CallbackDomain kDomains[] = {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_CB_DOMAIN_RUNTIME_API};
// A buffer is delivered when all its work has ended, so on a busy GPU when it is full.
constexpr size_t kBufferBytes = 128 << 10;

thread_local uint64_t tag_of_thread = 0;
CallTags call_tags;

std::mutex mutex;  // of all below
bool tracing = false;
CUpti_SubscriberHandle subscriber = nullptr;

std::mutex report_mutex;  // of all below; CUPTI calls back while `mutex` is held
xpud_pfnTraceReport_t report_to = nullptr;
void* report_user = nullptr;

void OnCall(void*, CUpti_CallbackDomain, uint32_t, const CUpti_CallbackData* call) {
  if (tag_of_thread != 0 && call->callbackSite == CUPTI_API_ENTER)
    call_tags.Put(call->correlationId, tag_of_thread);
}

void OnBufferRequested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;
}

xpud_trace_record_t RecordOf(const CUpti_ActivityKind* record) {
  if (*record == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel*>(record);
    return {call_tags.Of(kernel.correlationId), kernel.start, kernel.end};
  }
  if (*record == CUPTI_ACTIVITY_KIND_MEMCPY || *record == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto& memory = *reinterpret_cast<const CUpti_ActivityMemory*>(record);
    return {call_tags.Of(memory.correlationId), memory.start, memory.end};
  }
  return {};
}

void OnBufferCompleted(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  std::vector<xpud_trace_record_t> records;
  CUpti_ActivityKind* next = nullptr;
  while (Cupti().next(buffer, valid, &next) == CUPTI_SUCCESS) {
    const xpud_trace_record_t record = RecordOf(next);
    if (record.tag != 0 && record.began_ns != 0) records.push_back(record);
  }
  std::free(buffer);
  const std::lock_guard lock(report_mutex);
  if (report_to != nullptr && !records.empty()) report_to(report_user, records.data(), records.size());
}

void SetReport(xpud_pfnTraceReport_t report, void* user) {
  const std::lock_guard lock(report_mutex);
  report_to = report;
  report_user = user;
}

void Disable() {
  const Functions& cupti = Cupti();
  for (const CUpti_ActivityKind kind : kKinds) (void)cupti.disable(kind);
  (void)cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  if (subscriber != nullptr) (void)cupti.unsubscribe(subscriber);
  subscriber = nullptr;
  SetReport(nullptr, nullptr);
}

// Other kinds of calls than those that append are rare, so whole domains are enabled. What a library
// launches through CUDA's runtime has the number of its call into that.
bool Enable() {
  const Functions& cupti = Cupti();
  bool done = cupti.register_timestamp(&NowNs) == CUPTI_SUCCESS &&
              cupti.register_callbacks(OnBufferRequested, OnBufferCompleted) == CUPTI_SUCCESS &&
              cupti.subscribe(&subscriber, OnCall, nullptr) == CUPTI_SUCCESS;
  for (const CUpti_CallbackDomain domain : kDomains)
    done = done && cupti.enable_domain(1, subscriber, domain) == CUPTI_SUCCESS;
  for (const CUpti_ActivityKind kind : kKinds) done = done && cupti.enable(kind) == CUPTI_SUCCESS;
  return done;
}

}  // namespace

ze_result_t StartTrace(xpud_pfnTraceReport_t report, void* user) {
  const std::lock_guard lock(mutex);
  if (tracing || !Cupti().usable) return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
  SetReport(report, user);
  tracing = Enable();
  if (!tracing) Disable();
  return tracing ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

ze_result_t FlushTrace() {
  const std::lock_guard lock(mutex);
  if (!tracing) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  return Cupti().flush(0) == CUPTI_SUCCESS ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNKNOWN;
}

ze_result_t StopTrace() {
  const std::lock_guard lock(mutex);
  if (!tracing) return ZE_RESULT_ERROR_INVALID_ARGUMENT;
  tracing = false;
  Disable();
  return ZE_RESULT_SUCCESS;
}

void SetTraceTag(uint64_t tag) { tag_of_thread = tag; }

}  // namespace xpud::drivers::cuda
