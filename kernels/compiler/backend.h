// Machine code from a kernel's IR: links the math functions it calls, optimises, and emits an object, PTX or
// SPIR-V. Any thread, one at a time a module; LLVM's targets are initialised on first use.
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

// OK when the host's CPU can run what we generate for it (AVX2, FMA, F16C: any x86-64-v3).
absl::Status CheckHostCpu();

// The module's text or object. kSpirv is emitted in a forked child, since that back end keeps state between
// modules. Internal when a function is left undefined, or the back end fails.
absl::StatusOr<std::string> Generate(const CodeTarget& target, std::unique_ptr<llvm::Module> module);

// The optimised IR of a host module as text, for tests that look at the code.
absl::StatusOr<std::string> OptimisedText(std::unique_ptr<llvm::Module> module);

}  // namespace xpud::kernels
