#include "daemon/executor/process/executor_process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"

namespace xpud::executor::process {
namespace {

constexpr int kTakeDeviceMs = 30'000;  // creating a GPU's first context may take long
constexpr int kAnswerMs = 3'000;       // a thousand times the usual time; the lane waits

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status))
    return absl::StrCat("killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  return absl::StrCat("exit status ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExecutorProcess>> ExecutorProcess::Start(Spawner& spawner,
                                                                        const ExecutorCommand& command) {
  std::vector<PrivateRing> rings;
  for (uint32_t i = 0; i < command.rings; ++i) {
    ASSIGN_OR_RETURN(PrivateRing ring, PrivateRing::Create());
    rings.push_back(std::move(ring));
  }
  Ends here, there;
  RETURN_IF_ERROR(Channel::CreatePair(here.memory, there.memory));
  RETURN_IF_ERROR(Channel::CreatePair(here.compiler, there.compiler));
  RETURN_IF_ERROR(Channel::CreatePair(here.imports, there.imports));
  for (size_t i = 0; i < here.movers.size(); ++i)
    RETURN_IF_ERROR(Channel::CreatePair(here.movers[i], there.movers[i]));
  std::unique_ptr<ExecutorProcess> process(new ExecutorProcess(std::move(rings), std::move(here)));
  RETURN_IF_ERROR(process->Spawn(spawner, command, there));
  there = {};  // so that the end of the executor is a hang-up
  return process;
}

ExecutorProcess::ExecutorProcess(std::vector<PrivateRing> rings, Ends ends)
    : rings_(std::move(rings)),
      memory_(std::move(ends.memory)),
      compiler_(std::move(ends.compiler)),
      imports_(std::move(ends.imports)) {
  for (UniqueFd& mover : ends.movers) movers_.emplace_back(std::move(mover));
}

absl::Status ExecutorProcess::Spawn(Spawner& spawner, const ExecutorCommand& command, const Ends& ends) {
  std::vector<int> fds = {ends.memory.get(), ends.compiler.get(), ends.imports.get()};
  for (const UniqueFd& mover : ends.movers) fds.push_back(mover.get());
  for (const PrivateRing& ring : rings_) fds.insert(fds.end(), {ring.fd().get(), ring.doorbell().get()});
  ASSIGN_OR_RETURN(pid_, spawner.Spawn(command, fds));
  pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (!pidfd_.valid()) return absl::ErrnoToStatus(errno, "pidfd_open failed");
  return absl::OkStatus();
}

absl::Status ExecutorProcess::TakeDevice() {
  const auto reply = memory_.Ask({.kind = RequestKind::kTakeDevice}, -1, kTakeDeviceMs);
  if (absl::IsUnavailable(reply.status())) {  // it hung up or hangs: nothing else will say why
    if (hung()) Kill();
    return absl::UnavailableError(
        absl::StrCat(reply.status().message(), "; the executor's end: ", Reap().text));
  }
  RETURN_IF_ERROR(reply.status());
  const Answer& answer = reply->answer;
  devices_ = answer.devices;
  properties_.name = transport::GetText(answer.device.name);
  properties_.kind = transport::GetText(answer.device.kind);
  properties_.vendor = transport::GetText(answer.device.vendor);
  properties_.processor = transport::GetText(answer.processor);
  properties_.total_memory = answer.device.total_memory;
  properties_.compute_units = answer.device.compute_units;
  properties_.pci_address = PciAddress::OfBits(answer.device.pci_address);
  properties_.peak = answer.peak;
  properties_.replaceable = true;
  properties_.target = static_cast<kernels::Target>(answer.target);
  properties_.has_doubles = answer.has_doubles != 0;
  moves_chunks_ = answer.moves != 0;
  properties_.peers = answer.peers;
  properties_.most_groups = answer.most_groups;
  return absl::OkStatus();
}

ExecutorProcess::~ExecutorProcess() {
  if (pid_ == 0 || reaped_) return;
  Kill();
  Reap();
}

absl::StatusOr<Channel::Reply> ExecutorProcess::AskMemory(RequestKind kind, uint64_t address, uint64_t bytes,
                                                          int fd) {
  auto reply = memory_.Ask({.kind = kind, .address = address, .bytes = bytes}, fd, kAnswerMs);
  if (hung()) Kill();  // the watcher of the process sees its end
  return reply;
}

bool ExecutorProcess::IsThere() { return AskMemory(RequestKind::kPing, 0, 0).ok(); }

absl::StatusOr<UniqueFd> ExecutorProcess::Allocate(uint64_t address, uint64_t bytes) {
  ASSIGN_OR_RETURN(Channel::Reply reply, AskMemory(RequestKind::kAllocate, address, bytes));
  return std::move(reply.fd);
}

absl::Status ExecutorProcess::Import(uint64_t address, uint64_t bytes, const UniqueFd& fd) {
  return AskMemory(RequestKind::kImport, address, bytes, fd.get()).status();
}

absl::Status ExecutorProcess::ImportHost(uint64_t address, uint64_t bytes, int fd) {
  return AskMemory(RequestKind::kImportHost, address, bytes, fd).status();
}

absl::Status ExecutorProcess::Reserve(uint64_t address, uint64_t bytes) {
  return AskMemory(RequestKind::kReserve, address, bytes).status();
}

// If the executor is gone, its memory is gone too.
void ExecutorProcess::Free(uint64_t address) {
  (void)memory_.Tell({.kind = RequestKind::kFree, .address = address});
}

void ExecutorProcess::ReleaseHost(uint64_t address) {
  (void)memory_.Tell({.kind = RequestKind::kReleaseHost, .address = address});
}

absl::Status ExecutorProcess::ImportSlowly(uint64_t address, uint64_t bytes, int fd) {
  return imports_
      .Ask({.kind = RequestKind::kImportHost, .address = address, .bytes = bytes}, fd, kAnswerMs,
           [&] { return IsThere(); })
      .status();
}

void ExecutorProcess::ReleaseSlowly(uint64_t address) {
  (void)imports_.Tell({.kind = RequestKind::kReleaseHost, .address = address});
}

absl::StatusOr<Channel::Reply> ExecutorProcess::MoverEnd::Ask(const Request& request, int fd) {
  return channel_.Ask(request, fd, kAnswerMs, [&] { return process_.IsThere(); });
}

absl::StatusOr<UniqueFd> ExecutorProcess::MoverEnd::Allocate(uint64_t address, uint64_t bytes) {
  ASSIGN_OR_RETURN(Channel::Reply reply,
                   Ask({.kind = RequestKind::kAllocate, .address = address, .bytes = bytes}));
  return std::move(reply.fd);
}

absl::Status ExecutorProcess::MoverEnd::Import(uint64_t address, uint64_t bytes, const UniqueFd& fd) {
  return Ask({.kind = RequestKind::kImport, .address = address, .bytes = bytes}, fd.get()).status();
}

absl::Status ExecutorProcess::MoverEnd::Reserve(uint64_t address, uint64_t bytes) {
  return Ask({.kind = RequestKind::kReserve, .address = address, .bytes = bytes}).status();
}

absl::Status ExecutorProcess::MoverEnd::CopyOut(uint64_t address, const std::byte* host, uint64_t bytes) {
  return Ask({RequestKind::kCopyOut, 0, address, bytes, reinterpret_cast<uint64_t>(host)}).status();
}

absl::Status ExecutorProcess::MoverEnd::CopyIn(uint64_t address, const std::byte* host, uint64_t bytes) {
  return Ask({RequestKind::kCopyIn, 0, address, bytes, reinterpret_cast<uint64_t>(host)}).status();
}

absl::StatusOr<Channel::Reply> ExecutorProcess::AskCompiler(RequestKind kind,
                                                            std::span<const std::byte> input) {
  ASSIGN_OR_RETURN(const UniqueFd fd, ToMemfd(input));
  return compiler_.Ask({.kind = kind, .bytes = input.size()}, fd.get(), kAnswerMs, [&] { return IsThere(); });
}

absl::StatusOr<std::string> ExecutorProcess::Assemble(const std::string& text) {
  ASSIGN_OR_RETURN(const Channel::Reply reply,
                   AskCompiler(RequestKind::kAssemble, std::as_bytes(std::span(text))));
  return FromMemfd(reply.fd, reply.answer.value);
}

absl::StatusOr<uint64_t> ExecutorProcess::RunHostKernel(const kernels::Launch& launch) {
  const kernels::Kernel& kernel = launch.kernel();
  const auto values = launch.argument_bytes();
  const auto offsets = std::as_bytes(launch.argument_offsets());
  std::vector<std::byte> input(sizeof(HostKernelHeader));
  const auto add = [&](std::span<const std::byte> bytes) {
    const uint32_t at = static_cast<uint32_t>(input.size());
    input.insert(input.end(), bytes.begin(), bytes.end());
    return at;
  };
  const auto add_text = [&](const std::string& text) {
    return add(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  };
  HostKernelHeader header = {};
  header.module_at = add_text(kernel.module->bytes);
  header.entry_at = add_text(kernel.entry);
  header.values_at = add(values);
  header.value_bytes = static_cast<uint32_t>(values.size());
  header.offsets_at = add(offsets);
  header.arguments = static_cast<uint32_t>(launch.argument_count());
  std::memcpy(input.data(), &header, sizeof(header));
  ASSIGN_OR_RETURN(const Channel::Reply reply, AskCompiler(RequestKind::kRunHostKernel, input));
  return reply.answer.value;
}

void ExecutorProcess::Kill() {
  killed_.store(true);
  syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
}

bool ExecutorProcess::Ended() const {
  pollfd ended = {pidfd_.get(), POLLIN, 0};
  return poll(&ended, 1, 0) == 1;
}

ExecutorProcess::End ExecutorProcess::Reap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  reaped_ = true;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return {HowItEnded(status), signal == SIGKILL || signal == SIGTERM || signal == SIGINT, killed_.load()};
}

}  // namespace xpud::executor::process
