// A loop kernel as bytes that another process compiles, because LLVM is not trusted with what clients send.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/compiler/code_target.h"

namespace xpud::kernels {

// Compiles a variant, given its identity, here, as KernelCompiler::Compile. Returns InvalidArgument for other
// bytes. Checks the kernel again.
absl::StatusOr<std::string> CompileRequested(const CodeTarget& target, std::string_view request);

// Compiles a kernel of our own, so that what LLVM does once in a process is done.
absl::Status WarmUpCompiler(const CodeTarget& target);

}  // namespace xpud::kernels
