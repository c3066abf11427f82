// Compiles a kernel's IR: links the math functions that it calls, optimises, and emits an object, PTX or
// SPIR-V. Thread-safe, but each module is used by one thread at a time. LLVM's targets are initialised at
// first use.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/compiler/code_target.h"
#include "llvm/IR/Module.h"

namespace xpud::kernels {

// Everything outside the IR that determines what Generate makes: our sources, LLVM's version, the CPU and its
// features.
std::string CodeIdentity(const CodeTarget& target);

// Returns OK if the host's CPU can run the generated code (AVX2, FMA, F16C: any x86-64-v3).
absl::Status CheckHostCpu();

// Returns the module's text or object. kSpirv is emitted in a forked child, because that back end keeps state
// between modules. Returns Internal if a function is undefined or the back end fails.
absl::StatusOr<std::string> Generate(const CodeTarget& target, std::unique_ptr<llvm::Module> module);

// Returns the optimised IR of a host module as text, for tests that inspect the code.
absl::StatusOr<std::string> OptimisedText(std::unique_ptr<llvm::Module> module);

}  // namespace xpud::kernels
