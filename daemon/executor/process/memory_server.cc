#include "daemon/executor/process/memory_server.h"

#include "proto/base/status_macros.h"

namespace xpud::executor::process {

void MemoryServer::Run() {
  for (;;) {
    const auto question = channel_.Next();
    if (!question.ok()) return;
    Serve(*question);
  }
}

void MemoryServer::Serve(const Channel::Question& question) {
  switch (question.request.kind) {
    case RequestKind::kFree:
      return memory_.Free(question.request.address);
    case RequestKind::kReleaseHost:
      return memory_.ReleaseHost(question.request.address);
    default:
      break;
  }
  process::Answer answer = {};
  UniqueFd out;
  const absl::Status status = Answer(question, out);
  const bool lost = absl::IsUnavailable(status);
  if (lost) on_loss_.lost(status);
  channel_.Respond(status, answer, out.get());
  if (lost) on_loss_.end();
}

absl::Status MemoryServer::Answer(const Channel::Question& question, UniqueFd& out) {
  const Request& request = question.request;
  switch (request.kind) {
    case RequestKind::kAllocate:
      return memory_.Allocate(request.address, request.bytes, out);
    case RequestKind::kImport:
      return memory_.Import(request.address, request.bytes, question.fd);
    case RequestKind::kReserve:
      return memory_.Reserve(request.address, request.bytes);
    case RequestKind::kCopyOut:
      return Copy(request, LevelZeroMemory::Way::kOut);
    case RequestKind::kCopyIn:
      return Copy(request, LevelZeroMemory::Way::kIn);
    case RequestKind::kImportHost:
      return memory_.ImportHost(importer_, request.address, request.bytes, question.fd);
    case RequestKind::kPing:
      return absl::OkStatus();
    default:
      return absl::InternalError("unknown kind of request");
  }
}

absl::Status MemoryServer::Copy(const Request& request, LevelZeroMemory::Way way) {
  if (list_ == nullptr) {
    ASSIGN_OR_RETURN(list_, memory_.CreateList());
  }
  return memory_.Copy(*list_, way, request.address, request.host, request.bytes);
}

}  // namespace xpud::executor::process
