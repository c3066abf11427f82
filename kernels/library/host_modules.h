// The modules of HOST kernels in this binary, by name: how a launch names a kernel to another process. Each
// has static lifetime. Any thread.
#pragma once

#include <string_view>

#include "proto/base/ze_ext.h"

namespace xpud::kernels {

constexpr std::string_view kAttentionModule = "attention";
constexpr std::string_view kCublasltModule = "cublaslt";
constexpr std::string_view kOnednnModule = "onednn";

// nullptr: there is none of this name.
const xpud_host_module_t* FindHostModule(std::string_view name);

// Loads the libraries that HOST kernels on GPUs use, which takes long: on a thread of its own, while the
// device is opened. What is not there is met again at the first launch.
void LoadGpuLibraries();

// What the table is made of.
namespace attention {
extern const xpud_host_module_t kHostModule;
}
namespace cublaslt {
extern const xpud_host_module_t kHostModule;
void LoadLibrary();
}  // namespace cublaslt
namespace onednn {
extern const xpud_host_module_t kHostModule;
}

}  // namespace xpud::kernels
