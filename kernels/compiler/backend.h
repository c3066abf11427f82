// Compiles a kernel's IR: links the math functions that it calls, optimises, and emits an object, PTX or
// SPIR-V. Thread-safe, but each module is used by one thread at a time. LLVM's targets are initialised at
// first use.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/api/launch.h"
#include "llvm/IR/Module.h"

namespace xpud::kernels {

// The target of code generation. `processor` is for NVPTX; "sm_80" if empty.
struct CodeTarget {
  CodeTarget(Target kind, std::string name = {})  // NOLINT(google-explicit-constructor): usually a Target
      : target(kind), processor(name.empty() && kind == Target::kNvptx ? "sm_80" : std::move(name)) {}
  Target target;
  std::string processor;
};

// Returns everything except the IR that determines the result of Generate: our sources, LLVM's version, the
// CPU and its features.
std::string CodeIdentity(const CodeTarget& target);

// Returns OK if the host's CPU can run the generated code (AVX2, FMA, F16C: any x86-64-v3).
absl::Status CheckHostCpu();

// Returns the module's text or object. kSpirv is emitted in a forked child, because that back end keeps state
// between modules. Returns Internal if a function is undefined or the back end fails.
absl::StatusOr<std::string> Generate(const CodeTarget& target, std::unique_ptr<llvm::Module> module);

// Returns the optimised IR of a host module as text, for tests that inspect the code.
absl::StatusOr<std::string> OptimisedText(std::unique_ptr<llvm::Module> module);

}  // namespace xpud::kernels
