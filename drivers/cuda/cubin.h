// Checks device code before CUDA reads it: cuModuleLoadData takes no size, and would read past the end of a
// truncated file. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace xpud::drivers::cuda {

bool IsElf(std::string_view bytes);
// Returns "" if `bytes` is an ELF file for NVIDIA GPUs whose parts all lie inside it; otherwise the error.
std::string CheckCubin(std::string_view bytes);
// Returns "" if `bytes` may be PTX: text with a `.version` directive.
std::string CheckPtx(std::string_view bytes);

}  // namespace xpud::drivers::cuda
