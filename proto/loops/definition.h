// A loop kernel that a client has defined, and its calls, as the daemon keeps them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/loops/call_check.h"
#include "proto/loops/check.h"
#include "proto/loops/kernel.h"
#include "proto/ops/operand.h"

namespace xpud::loops {

// Immutable; any thread.
class Definition {
 public:
  // Decodes and checks. `name`: the client's, for people. Returns InvalidArgument: see Decode and
  // CheckKernel.
  static absl::StatusOr<std::shared_ptr<const Definition>> Create(std::string_view bytes,
                                                                  std::string_view name);

  const Kernel& kernel() const { return kernel_; }
  const KernelInfo& info() const { return info_; }
  const std::string& bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

 private:
  Definition(Kernel kernel, KernelInfo info, std::string_view bytes, std::string_view name)
      : kernel_(std::move(kernel)), info_(std::move(info)), bytes_(bytes), name_(name) {}

  const Kernel kernel_;
  const KernelInfo info_;
  const std::string bytes_, name_;
};

// A call that was checked. One thread.
struct DefinedCall : ops::KernelOfCall {
  std::shared_ptr<const Definition> definition;
  std::vector<int64_t> sizes;
  std::vector<int64_t> elements;  // of each operand; scalars: 1
  CallInfo info;
  // What a kernel library keeps of it. It goes when sizes or elements change.
  mutable std::shared_ptr<const void> plan;
};

// The last call of a definition, so that a call of the same sizes is not checked again. One thread.
class CallCache {
 public:
  explicit CallCache(std::shared_ptr<const Definition> definition);

  // Returns the call, which lives until the next one is found. `call` has the row `xpud::loop`; its kernel's
  // id is not looked at. Returns InvalidArgument if operands or sizes do not fit the kernel, or as CheckCall.
  absl::StatusOr<const DefinedCall*> Find(const ops::Call& call);
  // Returns the call with these sizes and, of each operand, as many elements (scalars: 1). Errors as
  // CheckCall.
  absl::StatusOr<const DefinedCall*> Find(std::span<const int64_t> sizes, std::span<const int64_t> elements);
  const Definition& definition() const { return *found_.definition; }

 private:
  // Checks found_'s sizes and elements, which are new.
  absl::Status Prove();

  DefinedCall found_;
  bool is_valid_ = false;  // whether found_ has been checked as it is
};

// The kernel's operand that an operand of a call is, and back: outputs are those that the kernel writes, in
// their order, inputs are the others.
std::vector<uint32_t> OutputsOf(const Kernel& kernel);
std::vector<uint32_t> InputsOf(const Kernel& kernel);

}  // namespace xpud::loops
