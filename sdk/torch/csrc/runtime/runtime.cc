#include "sdk/torch/csrc/runtime/runtime.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "sdk/torch/csrc/runtime/errors.h"

namespace xpud::shim {
namespace {

constexpr size_t kPooledStreams = 8;

thread_local int current_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> current_streams{};

bool WantsNullDevice() {
  const char* value = std::getenv("XPUD_NULL_DEVICE");
  return value != nullptr && std::string_view(value) == "1";
}

Mutex& ConnectMutex() {
  static Mutex* mutex = new Mutex;
  return *mutex;
}

SessionHooks& Hooks() {
  static SessionHooks hooks;
  return hooks;
}

ConnectOptions Options() {
  ConnectOptions options;
  options.interrupt = CheckInterrupt;
  options.client_name = ClientName();
  return options;
}

[[noreturn]] void ThrowNoDevices() {
  const char* visible = std::getenv("XPUD_VISIBLE_DEVICES");
  TORCH_CHECK(visible != nullptr, "No XPUD devices are available: the daemon has no devices");
  TORCH_CHECK(false, "No XPUD devices are available: XPUD_VISIBLE_DEVICES is \"", visible,
              "\", which selects none of the daemon's devices");
}

}  // namespace

void SetSessionHooks(const SessionHooks& hooks) { Hooks() = hooks; }

std::atomic<Runtime*> Runtime::instance_{nullptr};
std::atomic<uint32_t> Runtime::current_number_{1};
std::atomic<bool> Runtime::bad_fork_{false};
std::atomic<bool> Runtime::no_devices_{false};

Runtime& Runtime::Connect() {
  TORCH_CHECK(!IsInBadFork(),
              "Cannot re-initialize XPUD in forked subprocess. To use XPUD with multiprocessing, you must "
              "use the 'spawn' "
              "start method");
  if (Hooks().check_settings != nullptr) Hooks().check_settings();
  const WaitScope scope;  // before the lock: it retakes the interpreter lock after the mutex is released
  MutexLock lock(ConnectMutex());
  if (no_devices_) ThrowNoDevices();
  if (Runtime* made = instance_.load(std::memory_order_acquire)) return *made;
  std::unique_ptr<Runtime> runtime(new Runtime);
  if (WantsNullDevice()) {
    runtime->devices_.push_back(
        {.name = "null device", .kind = "null", .vendor = "xpud", .total_memory = uint64_t{1} << 40});
    runtime->queues_[0][0] = std::make_unique<Queue>();
  } else {
    auto session = Session::Connect(Options());
    if (!session.ok()) Throw(session.status());
    runtime->Take(*std::move(session));
  }
  ::pthread_atfork(nullptr, nullptr, [] {
    if (instance_.exchange(nullptr) != nullptr) bad_fork_ = true;
  });
  instance_.store(runtime.release(), std::memory_order_release);
  return *instance_.load();
}

void Runtime::Take(std::unique_ptr<Session> session) {
  session_ = std::move(session);
  devices_ = session_->devices();
  if (devices_.empty()) {
    no_devices_ = true;
    ThrowNoDevices();
  }
  if (devices_.size() > kMaxDevices) devices_.resize(kMaxDevices);
  if (session_->rows() != ops::KnownRows() && Hooks().fall_back_without != nullptr)
    Hooks().fall_back_without(session_->rows());
  for (int device = 0; device < device_count(); ++device)
    queues_[device][0] = std::make_unique<Queue>(session_->DefaultQueue(device));
}

void Runtime::MakeStreamsOf(Runtime& lost) {
  MutexLock lock(mutex_);
  MutexLock theirs(lost.mutex_);
  streams_ = lost.streams_;
  priorities_ = lost.priorities_;
  pool_ = lost.pool_;
  pool_turn_ = lost.pool_turn_;
  for (int device = 0; device < lost.device_count(); ++device) {
    for (int stream = 1; stream < streams_[device]; ++stream) {
      auto made = session_->CreateQueue(device, priorities_[device][stream]);
      if (!made.ok()) Throw(made.status());
      queues_[device][stream] = std::make_unique<Queue>(*std::move(made));
    }
  }
}

// `lost` is never destroyed: other threads may use it, and its tensors.
Runtime& Runtime::Reconnect(Runtime& lost) {
  const WaitScope scope;
  MutexLock lock(ConnectMutex());
  Runtime& now = Get();
  if (&now != &lost) return now;
  const absl::Status end = lost.session_->status();
  if (!lost.session_->HasLostDaemon()) {
    ThrowIfError(end);
    return lost;
  }
  auto session = Session::ConnectInPlaceOf(*lost.session_, Options());
  if (!session.ok()) {
    Throw(absl::UnavailableError(
        absl::StrCat(end.message(), "; no other is there: ", session.status().message())));
  }
  TORCH_CHECK((*session)->devices().size() >= lost.devices_.size(),
              "XPUD error: the xpud daemon died, and the next one has ", (*session)->devices().size(),
              " devices for this process, not ", lost.devices_.size(), "; start a new process");
  std::unique_ptr<Runtime> runtime(new Runtime);
  runtime->number_ = lost.number_ + 1;
  runtime->Take(*std::move(session));
  runtime->MakeStreamsOf(lost);
  // First: what was made with the former runtime is lost at once.
  current_number_.store(runtime->number_, std::memory_order_release);
  instance_.store(runtime.release(), std::memory_order_release);
  return *instance_.load();
}

int Runtime::DeviceCountOrZero() noexcept {
  if (IsInBadFork()) return 0;
  try {
    Runtime& runtime = Get();
    if (runtime.is_null() || runtime.session_->status().ok()) return runtime.device_count();
    return Reconnect(runtime).device_count();
  } catch (const c10::Error& error) {
    static std::atomic<bool> warned{false};
    if (no_devices_) return 0;  // no warning: XPUD_VISIBLE_DEVICES may hide them on purpose
    if (!warned.exchange(true)) {
      TORCH_WARN("no xpud devices: ", error.what_without_backtrace());
    }
    return 0;
  } catch (const std::exception&) {  // from a signal handler; the next use of the device reports it
    return 0;
  }
}

c10::Stream Runtime::NewStream(int device, int priority) {
  MutexLock lock(mutex_);
  int& count = streams_[device];
  c10::StreamId id = count;
  if (count == kMaxStreams) {
    id = 1 + static_cast<c10::StreamId>(pool_turn_[device][0]++ % (kMaxStreams - 1));
  } else if (is_null()) {
    queues_[device][count++] = std::make_unique<Queue>();
  } else {
    auto made = session_->CreateQueue(device, priority);
    if (!made.ok()) Throw(made.status());
    priorities_[device][count] = priority;
    queues_[device][count++] = std::make_unique<Queue>(*std::move(made));
  }
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device)),
                     id);
}

c10::Stream Runtime::PooledStream(int device, bool high_priority) {
  {
    MutexLock lock(mutex_);
    const std::vector<c10::StreamId>& pool = pool_[device][high_priority];
    if (pool.size() == kPooledStreams) {
      const c10::StreamId id = pool[pool_turn_[device][high_priority]++ % kPooledStreams];
      return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device)),
                         id);
    }
  }
  const c10::Stream stream = NewStream(device, high_priority ? -1 : 0);
  MutexLock lock(mutex_);
  pool_[device][high_priority].push_back(stream.id());
  return stream;
}

void Runtime::Synchronize(int device) {
  if (is_null()) return;
  const WaitScope scope;
  ThrowIfError(session_->Synchronize(device));
}

int Runtime::CurrentDevice() { return current_device; }
void Runtime::SetCurrentDevice(int device) { current_device = device; }
c10::StreamId Runtime::CurrentStream(int device) { return current_streams[device]; }
void Runtime::SetCurrentStream(int device, c10::StreamId stream) { current_streams[device] = stream; }

void Execute(const OpCall& call, int device) {
  Runtime& runtime = Runtime::Get();
  if (runtime.is_null()) [[unlikely]]
    return;
  const absl::Status status = runtime.current_queue(device).Execute(call);
  if (!status.ok()) [[unlikely]]
    Throw(status);
}

}  // namespace xpud::shim
