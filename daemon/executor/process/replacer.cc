#include "daemon/executor/process/replacer.h"

#include "proto/base/start_thread.h"

namespace xpud::executor::process {

Replacer::~Replacer() {
  if (thread_.joinable()) thread_.join();
}

void Replacer::Start(Process dead, Ending ending, MemoryMap::Parts memory) {
  if (thread_.joinable()) thread_.join();
  const auto replace = [this, dead = std::move(dead), ending, memory = std::move(memory)] {
    replacement_ = Replace(dead, ending, memory);
    ready_.store(true, std::memory_order_release);
    wake_();
    if (dead != nullptr && ending == Ending::kFaulted) dead->Reap();
  };
  auto started = StartThread("xpud-replace", replace);
  if (started.ok())
    thread_ = *std::move(started);
  else
    replace();  // the lane waits: its device cannot work before
}

std::optional<Replacer::Replacement> Replacer::Take() {
  if (!ready_.load(std::memory_order_acquire)) return std::nullopt;
  ready_.store(false);
  return std::exchange(replacement_, {});
}

// On the replacer's thread. A lost executor may write to its memory until it has ended, so the next one gets
// the memory after that. The exception is a fault, which stops all work of a device before it is reported
// (drivers/tests/lost_device_test). Beside an endless kernel, creating a context takes seconds, so then the
// next executor takes the device after the end of the old one.
Replacer::Replacement Replacer::Replace(const Process& dead, Ending ending, const MemoryMap::Parts& memory) {
  Replacement replacement;
  std::thread reaper;
  if (dead != nullptr && !dead->Ended()) dead->Kill();
  if (dead != nullptr && ending != Ending::kFaulted) {
    const auto reap = [&] { replacement.end = dead->Reap(); };
    auto started = StartThread("xpud-reap", reap);
    if (started.ok())
      reaper = *std::move(started);
    else
      reap();
    if (ending == Ending::kHung && reaper.joinable()) reaper.join();
  }
  replacement.process = spare_.Take();
  if (reaper.joinable()) reaper.join();
  if (!replacement.process.ok()) return replacement;
  auto given = MemoryMap::GiveAll(**replacement.process, memory);
  if (given.ok())
    replacement.memory = *std::move(given);
  else
    replacement.process = given.status();
  return replacement;
}

}  // namespace xpud::executor::process
