#include "deploy/agent/grants/process_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <ranges>

#include "proto/base/descriptor_error.h"
#include "proto/base/start_thread.h"
#include "proto/base/status_macros.h"

namespace xpud::agent {

absl::StatusOr<std::unique_ptr<ProcessWatch>> ProcessWatch::Start(
    std::function<void(const std::string&)> ended) {
  UniqueFd events(epoll_create1(EPOLL_CLOEXEC));
  if (!events.valid()) return DescriptorError("epoll_create1");
  UniqueFd end(eventfd(0, EFD_CLOEXEC));
  if (!end.valid()) return DescriptorError("eventfd");
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = 0}};
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, end.get(), &event) != 0) return DescriptorError("epoll_ctl");
  std::unique_ptr<ProcessWatch> watch(new ProcessWatch(std::move(events), std::move(end), std::move(ended)));
  ASSIGN_OR_RETURN(watch->thread_, StartThread("xpud-processes", [raw = watch.get()] { raw->Run(); }));
  return watch;
}

ProcessWatch::~ProcessWatch() {
  eventfd_write(end_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

absl::Status ProcessWatch::Add(const std::string& key, const ProcessName& name, const UniqueFd& process) {
  MutexLock lock(mutex_);
  RemoveLocked(key);
  if (const auto found = processes_.find(name); found != processes_.end()) {
    if (found->second.ended) return absl::FailedPreconditionError("the process has ended");
    found->second.keys.insert(key);
    names_[key] = name;
    return absl::OkStatus();
  }
  UniqueFd fd(fcntl(process.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return DescriptorError("fcntl");
  const uint64_t number = next_++;
  epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = number}};
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0) return DescriptorError("epoll_ctl");
  processes_.emplace(name, Process{number, std::move(fd), false, {key}});
  names_[key] = name;
  return absl::OkStatus();
}

void ProcessWatch::Remove(const std::string& key) {
  MutexLock lock(mutex_);
  RemoveLocked(key);
}

void ProcessWatch::RemoveLocked(const std::string& key) {
  const auto name = names_.find(key);
  if (name == names_.end()) return;
  const auto process = processes_.find(name->second);
  process->second.keys.erase(key);
  names_.erase(name);
  if (!process->second.keys.empty()) return;
  Unwatch(process->second);
  processes_.erase(process);
}

void ProcessWatch::Unwatch(Process& process) {
  // Closing alone does not end it: the caller's descriptor is of the same open file.
  if (process.fd.valid()) epoll_ctl(events_.get(), EPOLL_CTL_DEL, process.fd.get(), nullptr);
  process.fd.Reset();
}

bool ProcessWatch::Has(const std::string& key) const {
  MutexLock lock(mutex_);
  return names_.contains(key);
}

bool ProcessWatch::HasEnded(const std::string& key) const {
  MutexLock lock(mutex_);
  const auto name = names_.find(key);
  return name != names_.end() && processes_.at(name->second).ended;
}

std::vector<std::string> ProcessWatch::Keys() const {
  MutexLock lock(mutex_);
  const auto keys = std::views::keys(names_);
  return {keys.begin(), keys.end()};
}

std::vector<std::string> ProcessWatch::TakeEnd(uint64_t number) {
  MutexLock lock(mutex_);
  for (auto& [name, process] : processes_) {
    if (process.number != number) continue;
    process.ended = true;
    Unwatch(process);
    return {process.keys.begin(), process.keys.end()};
  }
  return {};  // it was removed meanwhile
}

void ProcessWatch::Run() {
  epoll_event event;
  while (true) {
    const int count = epoll_wait(events_.get(), &event, 1, -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 || (count > 0 && event.data.u64 == 0)) return;
    for (const std::string& key : TakeEnd(event.data.u64)) ended_(key);
  }
}

}  // namespace xpud::agent
