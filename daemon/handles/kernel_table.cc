#include "daemon/handles/kernel_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/base/text.h"

namespace xpud::handles {
namespace {

absl::StatusOr<std::unique_ptr<loops::CallCache>> Check(std::string_view bytes, std::string_view name,
                                                        uint64_t defined) {
  if (defined + bytes.size() > KernelTable::kMaxBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a definition of ", bytes.size(), " bytes beside others of ", defined, "; a session may define ",
        KernelTable::kMaxBytes, " bytes of loop kernels on a device: forget some"));
  }
  ASSIGN_OR_RETURN(auto definition, loops::Definition::Create(bytes, name));
  return std::make_unique<loops::CallCache>(std::move(definition));
}

}  // namespace

absl::Status KernelTable::Admit(uint32_t id) const {
  if (id == 0 || id > wire::kMaxKernels) {
    return absl::InvalidArgumentError(
        absl::StrCat("a loop kernel's id ", id, "; 1 to ", wire::kMaxKernels, " are allowed"));
  }
  if (Find(id) == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a loop kernel was defined with the id ", id, " of another"));
}

const KernelTable::Kernel& KernelTable::Define(uint32_t id, std::string_view bytes, std::string_view name) {
  auto kernel = std::make_unique<Kernel>();
  kernel->name = PrintableText(name);
  kernel->named.name = kernel->name;
  absl::StatusOr<std::unique_ptr<loops::CallCache>> calls = Check(bytes, kernel->name, bytes_);
  kernel->refusal = calls.status();
  if (calls.ok()) {
    kernel->calls = *std::move(calls);
    kernel->bytes = bytes.size();
    bytes_ += bytes.size();
  }
  if (kernels_.size() < id) kernels_.resize(id);
  return *(kernels_[id - 1] = std::move(kernel));
}

absl::Status KernelTable::Forget(uint32_t id) {
  const Kernel* const kernel = Find(id);
  if (kernel == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("loop kernel ", id, " was forgotten, which is not defined"));
  bytes_ -= kernel->bytes;
  kernels_[id - 1] = nullptr;
  return absl::OkStatus();
}

}  // namespace xpud::handles
