#include "proto/remote/event_loop.h"

#include <utility>

#include "proto/base/spin.h"
#include "proto/base/start_thread.h"
#include "proto/transport/futex.h"

namespace xpud::remote {
namespace {

constexpr int kRelaxes = 16;  // between two polls, which leaves a core's other hardware thread its time

void Happen(void* event, bool ok) { static_cast<Event*>(event)->happened(ok); }

}  // namespace

void EventLoop::Run() {
  void* event;
  bool ok;
  while (Next(&event, &ok)) Happen(event, ok);
}

bool EventLoop::Next(void** event, bool* ok) {
  const auto start = SpinTime::Clock::now();
  while (spin::kRelay.Continues(start, SpinTime::Clock::now())) {
    const auto found = queue_.AsyncNext(event, ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (found != grpc::CompletionQueue::TIMEOUT) return found == grpc::CompletionQueue::GOT_EVENT;
    for (int i = 0; i < kRelaxes; ++i) transport::CpuRelax();
  }
  return queue_.Next(event, ok);
}

void EventLoop::Start(const std::function<void()>& operation) {
  void* event;
  bool ok;
  const auto found = queue_.DoThenAsyncNext(operation, &event, &ok, gpr_inf_past(GPR_CLOCK_MONOTONIC));
  if (found == grpc::CompletionQueue::GOT_EVENT) Happen(event, ok);
}

EventThread::EventThread(const char* name) {
  auto started = StartThread(name, [this] { loop_.Run(); });
  status_ = started.status();
  if (started.ok()) thread_ = *std::move(started);
}

EventThread::~EventThread() {
  queue_.Shutdown();
  if (thread_.joinable())
    thread_.join();
  else
    loop_.Run();  // drains the queue
}

}  // namespace xpud::remote
