// Looking at device code before CUDA does: cuModuleLoadData takes no size, so that a truncated file would be
// read beyond its end. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace xpud::drivers::cuda {

bool IsElf(std::string_view bytes);
// Empty when `bytes` is an ELF file for NVIDIA GPUs whose parts all lie inside it; else what is wrong.
std::string CheckCubin(std::string_view bytes);
// Empty when `bytes` may be PTX: text with a `.version` directive.
std::string CheckPtx(std::string_view bytes);

}  // namespace xpud::drivers::cuda
