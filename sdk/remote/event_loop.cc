#include "sdk/remote/event_loop.h"

#include <pthread.h>

#include "proto/transport/futex.h"

namespace xpud::remote {
namespace {

// To take: longer than another thread takes to be woken, and than a small frame takes on a processor that did
// other work meanwhile.
constexpr std::chrono::microseconds kLengthy{100};
constexpr int kExpected = 16;  // after one of them
constexpr int kRelaxes = 16;   // between two looks, which leaves a core's other half its time

void Happen(void* event, bool ok) { static_cast<Event*>(event)->happened(ok); }

}  // namespace

void EventLoop::Run() {
  ++threads_;
  bool more = true;
  while (more) {
    if (lengthy_events_.load(std::memory_order_relaxed) != 0) {
      more = TakeNext();
    } else {
      turn_.acquire();
      more = TakeNext();
      turn_.release();
    }
  }
}

bool EventLoop::TakeNext() {
  void* event;
  bool ok;
  if (!Next(&event, &ok)) return false;
  const auto start = Clock::now();
  Happen(event, ok);
  const bool lengthy = threads_.load(std::memory_order_relaxed) > 1 && Clock::now() - start >= kLengthy;
  const int expected = lengthy_events_.load(std::memory_order_relaxed);
  if (lengthy || expected != 0)
    lengthy_events_.store(lengthy ? kExpected : expected - 1, std::memory_order_relaxed);
  return true;
}

bool EventLoop::Next(void** event, bool* ok) {
  const auto start = Clock::now();
  while (lengthy_events_.load(std::memory_order_relaxed) == 0 && patience_.GoesOn(start, Clock::now())) {
    const auto found = queue_.AsyncNext(event, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (found == grpc::CompletionQueue::SHUTDOWN) return false;
    if (found == grpc::CompletionQueue::GOT_EVENT) {
      patience_.Waited(Clock::now() - start);
      return true;
    }
    for (int i = 0; i < kRelaxes; ++i) transport::CpuRelax();
  }
  const bool more = queue_.Next(event, ok);
  patience_.Waited(Clock::now() - start);
  return more;
}

void EventLoop::Start(const std::function<void()>& operation) {
  void* event;
  bool ok;
  const auto found = queue_.DoThenAsyncNext(operation, &event, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
  if (found == grpc::CompletionQueue::GOT_EVENT) Happen(event, ok);
}

EventThread::EventThread(const char* name) {
  thread_ = std::thread([this, name] {
    pthread_setname_np(pthread_self(), name);
    loop_.Run();
  });
}

EventThread::~EventThread() {
  queue_.Shutdown();
  thread_.join();
}

}  // namespace xpud::remote
